// Behaviour: streams and memory that more than one context uses.
#include "gpu.h"

#include <vector>

namespace {

void enter(const Gpu &gpu) {
    REQUIRE(CU(cuCtxSetCurrent)(gpu.cuda()) == CUDA_SUCCESS);
}

void synchronize(const Gpu &gpu) {
    enter(gpu);
    REQUIRE(CU(cuCtxSynchronize)() == CUDA_SUCCESS);
}

} // namespace

TEST_CASE("a further use on a stream of another context is refused with the reason") {
    const Gpu home, other;
    const CUstream foreign = other.make_stream();
    enter(home);
    const emm_deviceptr ptr = home.allocate(4096);
    CHECK(emm_record_use(home.emm(), ptr, 4096, foreign) == EMM_E_INVALID_VALUE);
    CHECK_THAT(emm_last_error()->text, ContainsSubstring("another context"));
    CHECK(emm_record_use(home.emm(), ptr, 4096, home.make_stream()) == EMM_OK);
    CHECK(home.free(ptr, 4096) == EMM_OK);
    synchronize(home);
}

TEST_CASE("what is announced of a stream of another context is refused") {
    const Gpu home, other;
    const CUstream foreign = other.make_stream();
    enter(home);
    const CUstream own = home.make_stream(), unannounced = home.make_stream();
    const bool remembers = plugin_name() == "pool";
    CHECK(emm_stream_register(home.emm(), foreign) == (remembers ? EMM_E_INVALID_VALUE : EMM_OK));
    REQUIRE(emm_capture_begin(home.emm(), own) == EMM_OK);
    CHECK(emm_capture_begin(home.emm(), foreign) == EMM_E_INVALID_VALUE);
    CHECK(emm_capture_end(home.emm(), foreign) == EMM_E_INVALID_VALUE);
    CHECK(emm_capture_end(home.emm(), unannounced) == EMM_E_INVALID_VALUE);
    CHECK(emm_capture_end(home.emm(), own) == EMM_OK); // as no refused call has ended it
}

TEST_CASE("a stream of which the driver does not tell the context is not taken for an own one",
          "[sim]") {
    const Gpu home;
    const CUstream stream = home.make_stream();
    const emm_deviceptr ptr = home.allocate(4096);
    fail_next("cuStreamGetCtx@1");
    CHECK(emm_record_use(home.emm(), ptr, 4096, stream) == EMM_E_DRIVER);
    fail_next("cuStreamGetCtx@1");
    CHECK(emm_capture_begin(home.emm(), stream) == EMM_E_DRIVER);
    CHECK_THAT(emm_last_error()->text, ContainsSubstring("cuStreamGetCtx"));
    fail_next("");
    CHECK(home.free(ptr, 4096, stream) == EMM_OK);
}

TEST_CASE("memory freed on a stream of another context waits for it, or the free is refused",
          "[sim]") {
    const bool told = GENERATE(true, false);
    for (const size_t size : {size_t(4096), size_t(1) << 20, size_t(5) << 20}) {
        const Gpu home, other;
        const CUstream foreign = other.make_stream();
        enter(home);
        const CUstream own = home.make_stream();
        const uint64_t before = races();
        const emm_deviceptr ptr = home.allocate(size);
        fill(ptr, size, 1, foreign);
        fail_next(told ? "" : "cuStreamGetCtx@1");
        const emm_status status = home.free(ptr, size, foreign);
        fail_next("");
        if (status != EMM_OK) {
            CHECK(status == (told ? EMM_E_INVALID_VALUE : EMM_E_DRIVER));
            CHECK_THAT(emm_last_error()->text,
                       ContainsSubstring(told ? "another context" : "cuStreamGetCtx"));
            synchronize(other);
            enter(home);
            CHECK(home.free(ptr, size) == EMM_OK);
        }
        for (int round = 0; round < 4; round++) { // this completes the own context's work
            std::vector<emm_deviceptr> taken;
            for (const emm_stream stream : {emm_stream(own), EMM_STREAM_UNORDERED}) {
                taken.push_back(home.allocate(size, stream));
                fill(taken.back(), size, 2, own);
            }
            for (const emm_deviceptr next : taken) {
                CHECK(home.free(next, size, round % 2 ? own : EMM_STREAM_UNORDERED) == EMM_OK);
            }
            const emm_deviceptr large = home.allocate(8 << 20);
            CHECK(home.free(large, 8 << 20) == EMM_OK);
            synchronize(home);
        }
        synchronize(other);
        enter(home);
        CHECK(races() == before);
    }
}

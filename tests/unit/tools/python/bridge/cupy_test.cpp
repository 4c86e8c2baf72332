// CuPy's allocator of C functions.
#include "client.h"

#include <cstdlib>

namespace {

void *param(uintptr_t flags) {
    return reinterpret_cast<void *>(flags);
}

} // namespace

TEST_CASE("CuPy's memory goes back without its size") {
    for (const uintptr_t flags : {uintptr_t(0), EMM_CUPY_TESTED, EMM_CUPY_LEGACY}) {
        void *ptr = emm_cupy_malloc(param(flags), 1 << 20, 0);
        REQUIRE(ptr != nullptr);
        CHECK(stats().live_bytes == 1 << 20);
        emm_cupy_free(param(flags), ptr, 0);
        CHECK(stats().live_bytes == 0);
    }
}

// Memory freed in the order of a stream is given out there at once by the pool; memory freed with
// no stream waits for an event at least.
TEST_CASE("CuPy's memory belongs to the default stream if that was current at its allocation") {
    static intptr_t current = 0;
    emm_cupy_set_current_stream([] { return current; });
    const auto comes_again_at_once = [](intptr_t at_allocation, intptr_t at_free) {
        current = at_allocation;
        void *first = emm_cupy_malloc(param(EMM_CUPY_CURRENT), 4096, 0);
        current = at_free;
        emm_cupy_free(param(EMM_CUPY_CURRENT), first, 0);
        current = at_allocation;
        void *second = emm_cupy_malloc(param(EMM_CUPY_CURRENT), 4096, 0);
        emm_cupy_free(param(EMM_CUPY_CURRENT), second, 0);
        return second == first;
    };
    const bool on_default = comes_again_at_once(0, 0) && comes_again_at_once(0, 7);
    const bool elsewhere = comes_again_at_once(7, 7) || comes_again_at_once(7, 0);
    current = 7;
    CHECK(emm_cupy_malloc(param(EMM_CUPY_CURRENT), 0, 0) == nullptr);
    CHECK(stats().live_bytes == 0);
    emm_cupy_set_current_stream(nullptr);
    if (std::string(getenv("EMM_PLUGIN")).rfind("pool", 0) == 0) {
        CHECK(on_default);
        CHECK_FALSE(elsewhere);
    }
}

TEST_CASE("CuPy's pinned memory is the host's, and goes back the same way") {
    auto *ptr = static_cast<char *>(emm_cupy_malloc(param(EMM_CUPY_PINNED), 1 << 20, 0));
    REQUIRE(ptr != nullptr);
    ptr[(1 << 20) - 1] = 1;
    CHECK(stats().host_live_bytes == 1 << 20);
    emm_cupy_free(param(EMM_CUPY_PINNED), ptr, 0);
    CHECK(stats().host_live_bytes == 0);
    CHECK(emm_cupy_malloc(param(EMM_CUPY_PINNED + EMM_CUPY_TESTED), SIZE_MAX / 2, 0) == nullptr);
}

TEST_CASE("CuPy out of memory gets NULL where it looks, else an exception with the bytes") {
    CHECK(emm_cupy_malloc(param(EMM_CUPY_TESTED), too_much, 0) == nullptr);
    CHECK(emm_last_error()->code == EMM_E_OUT_OF_MEMORY);
    const std::string text = thrown_by([] { emm_cupy_malloc(param(0), too_much, 0); });
    CHECK(contains(text, std::to_string(too_much) + " bytes on device 0"));
}

TEST_CASE("what CuPy frees after the end is a success that does nothing") {
    void *ptr = emm_cupy_malloc(param(0), 4096, 0);
    REQUIRE(emm_shutdown() == EMM_OK);
    emm_cupy_free(param(0), ptr, 0);
    CHECK(late_frees() == 1);
}

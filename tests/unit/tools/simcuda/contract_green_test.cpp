// Behaviour: green contexts beside their device's primary one: the same on real hardware and
// simulated.
#include "pending_work.h"

#include <optional>

// Headers before CUDA 12.5 lack the types.
#if CUDA_VERSION >= 12050
namespace {

#define GREEN_ENTRY(name)                                                                          \
    const decltype(&::name) name = cu().optional<decltype(&::name)>(#name, 12050)

struct GreenEntries {
    GREEN_ENTRY(cuDeviceGetDevResource);
    GREEN_ENTRY(cuDevSmResourceSplitByCount);
    GREEN_ENTRY(cuDevResourceGenerateDesc);
    GREEN_ENTRY(cuGreenCtxCreate);
    GREEN_ENTRY(cuGreenCtxDestroy);
    GREEN_ENTRY(cuCtxFromGreenCtx);
    GREEN_ENTRY(cuGreenCtxStreamCreate);
};

struct Green : GreenEntries {
    Green() {
        CUdevResource all = {}, part = {};
        CUdevResourceDesc description = nullptr;
        unsigned groups = 1;
        REQUIRE(cuDeviceGetDevResource(0, &all, CU_DEV_RESOURCE_TYPE_SM) == CUDA_SUCCESS);
        REQUIRE(cuDevSmResourceSplitByCount(&part, &groups, &all, nullptr, 0, 8) == CUDA_SUCCESS);
        REQUIRE(cuDevResourceGenerateDesc(&description, &part, 1) == CUDA_SUCCESS);
        REQUIRE(cuGreenCtxCreate(&handle, description, 0, CU_GREEN_CTX_DEFAULT_STREAM) ==
                CUDA_SUCCESS);
        REQUIRE(cuCtxFromGreenCtx(&context, handle) == CUDA_SUCCESS);
    }
    ~Green() { cuGreenCtxDestroy(handle); }
    Green(const Green &) = delete;
    Green &operator=(const Green &) = delete;
    CUgreenCtx handle = nullptr;
    CUcontext context = nullptr;
};

void enter(CUcontext context) {
    REQUIRE(cu().cuCtxSetCurrent(context) == CUDA_SUCCESS);
}

struct Primary {
    Primary() { REQUIRE(cu().cuDevicePrimaryCtxRetain(&context, 0) == CUDA_SUCCESS); }
    ~Primary() { cu().cuDevicePrimaryCtxRelease(0); }
    Primary(const Primary &) = delete;
    Primary &operator=(const Primary &) = delete;
    CUcontext context = nullptr;
};

} // namespace

TEST_CASE("a green context has a handle, an id and a NULL stream of its own, and no memory") {
    const Device device;
    const Primary primary;
    const Green green;
    CHECK(green.context != primary.context);
    CHECK(context_id(green.context) != context_id(primary.context));
    unsigned long long in_primary = 0, in_green = 0, own = 0;
    enter(primary.context);
    CHECK(cu().cuStreamGetId(nullptr, &in_primary) == CUDA_SUCCESS);
    enter(green.context);
    CHECK(cu().cuStreamGetId(nullptr, &in_green) == CUDA_SUCCESS);
    CHECK(in_green != in_primary);
    CHECK(cu().cuStreamGetId(CU_STREAM_PER_THREAD, &own) == CUDA_ERROR_INVALID_HANDLE);
    const Block block(4096);
    CUcontext owner = nullptr;
    CHECK(cu().cuPointerGetAttribute(&owner, CU_POINTER_ATTRIBUTE_CONTEXT, block) == CUDA_SUCCESS);
    CHECK(owner == primary.context);
    CHECK(cu().cuCtxDestroy(green.context) == CUDA_ERROR_INVALID_CONTEXT);
    enter(primary.context);
}

TEST_CASE("the NULL streams of a green context and of its primary one are in no order") {
    PendingWork work;
    const Device device;
    const Primary primary;
    const Green green;
    CUevent on_null = nullptr;
    enter(primary.context);
    const Block block(4096);
    REQUIRE(cu().cuEventCreate(&on_null, CU_EVENT_DISABLE_TIMING) == CUDA_SUCCESS);
    enter(green.context);
    work.begin(nullptr);
    enter(primary.context);
    REQUIRE(cu().cuMemsetD8Async(block, 1, 4096, nullptr) == CUDA_SUCCESS);
    REQUIRE(cu().cuEventRecord(on_null, nullptr) == CUDA_SUCCESS);
    CHECK(cu().cuEventSynchronize(on_null) == CUDA_SUCCESS);
    enter(green.context);
    CHECK(cu().cuStreamQuery(nullptr) == CUDA_ERROR_NOT_READY);
    work.end();
    CHECK(cu().cuStreamSynchronize(nullptr) == CUDA_SUCCESS);
    enter(primary.context);
    CHECK(cu().cuEventDestroy(on_null) == CUDA_SUCCESS);
}

TEST_CASE("an event of the primary context covers the work of its green ones") {
    PendingWork work;
    const Device device;
    const Primary primary;
    const Green green;
    CUevent event = nullptr;
    enter(green.context);
    REQUIRE(cu().cuEventCreate(&event, CU_EVENT_DISABLE_TIMING) == CUDA_SUCCESS);
    work.begin(nullptr);
    REQUIRE(cu().record_context(primary.context, event) == CUDA_SUCCESS);
    CHECK(cu().cuEventQuery(event) == CUDA_ERROR_NOT_READY);
    work.end();
    CHECK(cu().cuEventSynchronize(event) == CUDA_SUCCESS);
    CHECK(cu().cuStreamQuery(nullptr) == CUDA_SUCCESS);
    CHECK(cu().cuEventDestroy(event) == CUDA_SUCCESS);
    enter(primary.context);
}

TEST_CASE("a green context keeps its primary one alive") {
    const Device device;
    CUstream stream = nullptr;
    std::optional<Primary> primary;
    primary.emplace();
    const unsigned long long id = context_id(primary->context);
    {
        const Green green;
        primary.reset();
        enter(green.context);
        REQUIRE(green.cuGreenCtxStreamCreate(&stream, green.handle, CU_STREAM_NON_BLOCKING, 0) ==
                CUDA_SUCCESS);
        const Block block(4096);
        CHECK(cu().cuMemsetD8Async(block, 1, 4096, stream) == CUDA_SUCCESS);
        CHECK(cu().cuStreamDestroy(stream) == CUDA_SUCCESS);
        primary.emplace();
        CHECK(context_id(primary->context) == id);
        enter(primary->context);
    }
}
#endif

// Behaviour: CUDA's promises about contexts: the same on real hardware and simulated.
#include "cuda_driver.h"

#include <cstring>
#include <thread>

TEST_CASE("entries are found by name and version, and others are not found") {
    void *found = nullptr, *older = nullptr;
    int answer = -1;
    CHECK(cu().get_proc_address("cuMemAlloc", &found, 12000, 0, &answer) == CUDA_SUCCESS);
    CHECK(answer == CU_GET_PROC_ADDRESS_SUCCESS);
    CHECK(found != nullptr);
    cu().get_proc_address("cuCtxCreate", &found, 11040, 0, &answer);
    cu().get_proc_address("cuCtxCreate", &older, 3020, 0, &answer);
    CHECK(found != older);
    CHECK(cu().get_proc_address("cuNoSuchCall", &found, 12000, 0, &answer) == CUDA_SUCCESS);
    CHECK(answer == CU_GET_PROC_ADDRESS_SYMBOL_NOT_FOUND);
    CHECK(found == nullptr);
    cu().get_proc_address("cuCtxGetId", &found, 11000, 0, &answer);
    CHECK(answer == CU_GET_PROC_ADDRESS_VERSION_NOT_SUFFICIENT);
    CHECK(found == nullptr);
}

TEST_CASE("a stream entry has a variant for per-thread default streams") {
    void *legacy = nullptr, *own = nullptr;
    int answer = -1;
    cu().get_proc_address("cuStreamSynchronize", &legacy, 12000, CU_GET_PROC_ADDRESS_LEGACY_STREAM,
                          &answer);
    cu().get_proc_address("cuStreamSynchronize", &own, 12000,
                          CU_GET_PROC_ADDRESS_PER_THREAD_DEFAULT_STREAM, &answer);
    CHECK(legacy != nullptr);
    CHECK(own != nullptr);
    CHECK(legacy != own);
}

TEST_CASE("errors have names") {
    const char *name = nullptr;
    CHECK(cu().cuGetErrorName(CUDA_ERROR_OUT_OF_MEMORY, &name) == CUDA_SUCCESS);
    CHECK(name == std::string("CUDA_ERROR_OUT_OF_MEMORY"));
    CHECK(cu().cuGetErrorName(static_cast<CUresult>(123456), &name) == CUDA_ERROR_INVALID_VALUE);
}

TEST_CASE("a device has a name, a UUID, an address on the bus and memory") {
    const Device device;
    char name[100] = "", bus[32] = "";
    CUuuid uuid = {}, zero = {};
    CUdevice found = -1;
    size_t bytes = 0;
    CHECK(cu().cuDeviceGetName(name, sizeof name, 0) == CUDA_SUCCESS);
    CHECK(std::string(name) != "");
    CHECK(cu().cuDeviceGetUuid(&uuid, 0) == CUDA_SUCCESS);
    CHECK(std::memcmp(&uuid, &zero, sizeof uuid) != 0);
    CHECK(cu().cuDeviceGetPCIBusId(bus, sizeof bus, 0) == CUDA_SUCCESS);
    CHECK(cu().cuDeviceGetByPCIBusId(&found, bus) == CUDA_SUCCESS);
    CHECK(found == 0);
    CHECK(cu().cuDeviceTotalMem(&bytes, 0) == CUDA_SUCCESS);
    CHECK(bytes > 0);
    CHECK(cu().cuDeviceTotalMem(&bytes, 1000) == CUDA_ERROR_INVALID_DEVICE);
}

TEST_CASE("a primary context is one, however often it is retained") {
    const Device device;
    CUcontext again = nullptr;
    unsigned flags = 0;
    int active = 0;
    REQUIRE(cu().cuDevicePrimaryCtxRetain(&again, 0) == CUDA_SUCCESS);
    CHECK(again == device.context);
    CHECK(cu().cuDevicePrimaryCtxRelease(0) == CUDA_SUCCESS);
    CHECK(cu().cuDevicePrimaryCtxGetState(0, &flags, &active) == CUDA_SUCCESS);
    CHECK(active == 1);
}

TEST_CASE("a primary context has a new id after a reset, and none until it is retained") {
    CUcontext context = nullptr, again = nullptr;
    unsigned long long id = 0;
    REQUIRE(cu().cuInit(0) == CUDA_SUCCESS);
    REQUIRE(cu().cuDevicePrimaryCtxRetain(&context, 0) == CUDA_SUCCESS);
    const uint64_t old_id = context_id(context);
    REQUIRE(cu().cuDevicePrimaryCtxReset(0) == CUDA_SUCCESS);
    CHECK(cu().cuCtxGetId(context, &id) == CUDA_ERROR_CONTEXT_IS_DESTROYED);
    REQUIRE(cu().cuDevicePrimaryCtxRetain(&again, 0) == CUDA_SUCCESS);
    CHECK(again == context);
    CHECK(context_id(again) != old_id);
    REQUIRE(cu().cuDevicePrimaryCtxReset(0) == CUDA_SUCCESS);
}

TEST_CASE("after a reset a new allocation may get an old address") {
    CUdeviceptr before = 0, after = 0;
    {
        const Device device;
        REQUIRE(cu().cuMemAlloc(&before, 1 << 20) == CUDA_SUCCESS);
        REQUIRE(cu().cuDevicePrimaryCtxReset(0) == CUDA_SUCCESS);
    }
    const Device device;
    REQUIRE(cu().cuMemAlloc(&after, 1 << 20) == CUDA_SUCCESS);
    CHECK(after == before);
    CHECK(cu().cuMemFree(after) == CUDA_SUCCESS);
}

TEST_CASE("a context's id is never given twice, though its handle may be") {
    const Device device;
    CUcontext first = nullptr, second = nullptr;
    REQUIRE(cu().create_context(&first, 0, 0) == CUDA_SUCCESS);
    const uint64_t first_id = context_id(first);
    REQUIRE(cu().cuCtxDestroy(first) == CUDA_SUCCESS);
    REQUIRE(cu().create_context(&second, 0, 0) == CUDA_SUCCESS);
    CHECK(second != nullptr);
    CHECK(context_id(second) != first_id);
    REQUIRE(cu().cuCtxDestroy(second) == CUDA_SUCCESS);
}

TEST_CASE("contexts are pushed and popped by thread") {
    const Device device;
    CUcontext current = nullptr;
    REQUIRE(cu().cuCtxGetCurrent(&current) == CUDA_SUCCESS);
    CHECK(current == device.context);
    CUcontext elsewhere = device.context;
    CUdevice ordinal = -1;
    CUresult without = CUDA_SUCCESS;
    std::thread([&] {
        cu().cuCtxGetCurrent(&elsewhere);
        without = cu().cuCtxGetDevice(&ordinal);
    }).join();
    CHECK(elsewhere == nullptr);
    CHECK(without == CUDA_ERROR_INVALID_CONTEXT);
}

TEST_CASE("a context's id can be asked for by handle with none current") {
    const Device device;
    CUcontext popped = nullptr;
    unsigned long long id = 0;
    REQUIRE(cu().cuCtxPopCurrent(&popped) == CUDA_SUCCESS);
    CHECK(cu().cuCtxGetId(device.context, &id) == CUDA_SUCCESS);
    CHECK(cu().cuCtxGetId(nullptr, &id) == CUDA_ERROR_INVALID_CONTEXT);
    REQUIRE(cu().cuCtxPushCurrent(device.context) == CUDA_SUCCESS);
}

TEST_CASE("a reset leaves the primary context as often retained as it was") {
    CUcontext context = nullptr;
    unsigned flags = 0;
    int active = -1;
    REQUIRE(cu().cuInit(0) == CUDA_SUCCESS);
    REQUIRE(cu().cuDevicePrimaryCtxRetain(&context, 0) == CUDA_SUCCESS);
    REQUIRE(cu().cuDevicePrimaryCtxReset(0) == CUDA_SUCCESS);
    REQUIRE(cu().cuDevicePrimaryCtxRetain(&context, 0) == CUDA_SUCCESS);
    CHECK(cu().cuDevicePrimaryCtxRelease(0) == CUDA_SUCCESS);
    CHECK(cu().cuDevicePrimaryCtxGetState(0, &flags, &active) == CUDA_SUCCESS);
    CHECK(active == 1);
    CHECK(cu().cuDevicePrimaryCtxRelease(0) == CUDA_SUCCESS);
    CHECK(cu().cuDevicePrimaryCtxGetState(0, &flags, &active) == CUDA_SUCCESS);
    CHECK(active == 0);
}

namespace {

using CtxAttach = CUresult (*)(CUcontext *, unsigned);
using CtxDetach = CUresult (*)(CUcontext);

} // namespace

TEST_CASE("a context that was attached to lives until the last detach") {
    const Device device;
    const auto attach = cu().optional<CtxAttach>("cuCtxAttach", 2000);
    const auto detach = cu().optional<CtxDetach>("cuCtxDetach", 2000);
    REQUIRE(attach);
    REQUIRE(detach);
    CUcontext context = nullptr, attached = nullptr, current = nullptr;
    REQUIRE(cu().create_context(&context, 0, 0) == CUDA_SUCCESS);
    CHECK(attach(&attached, 1) == CUDA_ERROR_INVALID_VALUE);
    REQUIRE(attach(&attached, 0) == CUDA_SUCCESS);
    CHECK(attached == context);
    CHECK(detach(context) == CUDA_SUCCESS);
    const uint64_t id = context_id(context);
    CHECK(id != 0);
    CHECK(detach(context) == CUDA_SUCCESS);
    unsigned long long none = 0;
    CHECK(cu().cuCtxGetId(context, &none) != CUDA_SUCCESS);
    CHECK(cu().cuCtxGetCurrent(&current) == CUDA_SUCCESS);
    CHECK(current == device.context);
}

TEST_CASE("a context that is not current cannot be detached from") {
    const Device device;
    const auto detach = cu().optional<CtxDetach>("cuCtxDetach", 2000);
    CUcontext context = nullptr, popped = nullptr;
    REQUIRE(cu().create_context(&context, 0, 0) == CUDA_SUCCESS);
    REQUIRE(cu().cuCtxPopCurrent(&popped) == CUDA_SUCCESS);
    CHECK(detach(context) == CUDA_ERROR_INVALID_CONTEXT);
    CHECK(context_id(context) != 0);
    CHECK(cu().cuCtxDestroy(context) == CUDA_SUCCESS);
}

TEST_CASE("a detachment from a primary context changes nothing") {
    const Device device;
    const auto detach = cu().optional<CtxDetach>("cuCtxDetach", 2000);
    CUcontext current = nullptr;
    const uint64_t id = context_id(device.context);
    CHECK(detach(device.context) == CUDA_SUCCESS);
    CHECK(context_id(device.context) == id);
    CHECK(cu().cuCtxGetCurrent(&current) == CUDA_SUCCESS);
    CHECK(current == device.context);
}

TEST_CASE("a primary context is destroyed with its last reference, and its contents with it") {
    CUcontext context = nullptr;
    CUdeviceptr address = 0;
    unsigned type = 0;
    REQUIRE(cu().cuInit(0) == CUDA_SUCCESS);
    REQUIRE(cu().cuDevicePrimaryCtxRetain(&context, 0) == CUDA_SUCCESS);
    REQUIRE(cu().cuDevicePrimaryCtxRetain(&context, 0) == CUDA_SUCCESS);
    REQUIRE(cu().cuCtxSetCurrent(context) == CUDA_SUCCESS);
    REQUIRE(cu().cuMemAlloc(&address, 4096) == CUDA_SUCCESS);
    REQUIRE(cu().cuDevicePrimaryCtxRelease(0) == CUDA_SUCCESS);
    CHECK(cu().cuPointerGetAttribute(&type, CU_POINTER_ATTRIBUTE_MEMORY_TYPE, address) ==
          CUDA_SUCCESS);
    REQUIRE(cu().cuDevicePrimaryCtxRelease(0) == CUDA_SUCCESS);
    CHECK(cu().cuPointerGetAttribute(&type, CU_POINTER_ATTRIBUTE_MEMORY_TYPE, address) ==
          CUDA_ERROR_INVALID_VALUE);
    CHECK(cu().cuDevicePrimaryCtxRelease(0) == CUDA_ERROR_INVALID_CONTEXT);
}

#if CUDA_VERSION >= 12050
TEST_CASE("a context is made with parameters that ask for nothing") {
    using Create = CUresult(CUDAAPI *)(CUcontext *, CUctxCreateParams *, unsigned, CUdevice);
    const auto create = cu().optional<Create>("cuCtxCreate", 12050);
    if (create) {
        const Device device;
        CUcontext context = nullptr;
        CUctxCreateParams nothing = {};
        REQUIRE(create(&context, &nothing, 0, 0) == CUDA_SUCCESS);
        CHECK(cu().cuCtxDestroy(context) == CUDA_SUCCESS);
    }
}
#endif

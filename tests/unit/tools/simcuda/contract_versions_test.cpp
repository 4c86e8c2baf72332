// Behaviour: CUDA's promises about the earlier versions of its entries: the same on real hardware
// and simulated.
#include "cuda_driver.h"

#include <vector>

namespace {

template <typename Function> Function version_of(const char *name, int version) {
    return cu().optional<Function>(name, version);
}

} // namespace

TEST_CASE("each version of an entry is found by the CUDA version that it came with") {
    const struct {
        const char *name;
        int first, second;
    } entries[] = {{"cuMemAlloc", 2000, 3020},
                   {"cuMemAllocPitch", 2000, 3020},
                   {"cuMemFree", 2000, 3020},
                   {"cuMemGetInfo", 2000, 3020},
                   {"cuMemGetAddressRange", 2000, 3020},
                   {"cuMemAllocHost", 2000, 3020},
                   {"cuMemHostGetDevicePointer", 2020, 3020},
                   {"cuMemHostRegister", 4000, 6050},
                   {"cuIpcOpenMemHandle", 4010, 11000},
                   {"cuDevicePrimaryCtxRelease", 7000, 11000},
                   {"cuDevicePrimaryCtxReset", 7000, 11000},
                   {"cuDevicePrimaryCtxSetFlags", 7000, 11000},
                   {"cuStreamBeginCapture", 10000, 10010},
                   {"cuStreamGetCaptureInfo", 10010, 11030}};
    for (const auto &entry : entries) {
        INFO(entry.name);
        void *first = nullptr, *second = nullptr, *between = nullptr, *before = nullptr;
        int answer = -1;
        CHECK(cu().get_proc_address(entry.name, &before, entry.first - 1, 0, &answer) ==
              CUDA_SUCCESS);
        CHECK(answer == CU_GET_PROC_ADDRESS_VERSION_NOT_SUFFICIENT);
        CHECK(before == nullptr);
        cu().get_proc_address(entry.name, &first, entry.first, 0, &answer);
        cu().get_proc_address(entry.name, &between, entry.second - 1, 0, &answer);
        cu().get_proc_address(entry.name, &second, entry.second, 0, &answer);
        CHECK(first != nullptr);
        CHECK(first == between);
        CHECK(second != nullptr);
        CHECK(second != first);
    }
}

TEST_CASE("the first versions of 32 bits give no memory in a context of today's") {
    const Device device;
    void *host = nullptr;
    unsigned address = 0;
    CHECK(version_of<CUresult (*)(void **, unsigned)>("cuMemAllocHost", 2000)(&host, 4096) ==
          CUDA_ERROR_INVALID_CONTEXT);
    CHECK(version_of<CUresult (*)(unsigned *, unsigned)>("cuMemAlloc", 2000)(&address, 4096) ==
          CUDA_ERROR_INVALID_CONTEXT);
}

TEST_CASE("a range registered by the first version is known to the second") {
    const Device device;
    std::vector<char> range(1 << 16);
    using Register = CUresult (*)(void *, size_t, unsigned);
    REQUIRE(version_of<Register>("cuMemHostRegister", 4000)(range.data(), range.size(), 0) ==
            CUDA_SUCCESS);
    CHECK(cu().cuMemHostRegister(range.data(), range.size(), 0) ==
          CUDA_ERROR_HOST_MEMORY_ALREADY_REGISTERED);
    CHECK(cu().cuMemHostUnregister(range.data()) == CUDA_SUCCESS);
}

TEST_CASE("a capture by the first version is a relaxed one") {
    const Device device;
    const Stream stream;
    CUstreamCaptureStatus status = CU_STREAM_CAPTURE_STATUS_NONE;
    cuuint64_t id = 0;
    CUdeviceptr address = 0;
    CUgraph graph = nullptr;
    using GetInfo = CUresult (*)(CUstream, CUstreamCaptureStatus *, cuuint64_t *);
    REQUIRE(version_of<CUresult (*)(CUstream)>("cuStreamBeginCapture", 10000)(stream) ==
            CUDA_SUCCESS);
    CHECK(version_of<GetInfo>("cuStreamGetCaptureInfo", 10010)(stream, &status, &id) ==
          CUDA_SUCCESS);
    CHECK(status == CU_STREAM_CAPTURE_STATUS_ACTIVE);
    CHECK(id != 0);
    CHECK(cu().cuMemAlloc(&address, 4096) == CUDA_SUCCESS);
    CHECK(cu().cuStreamEndCapture(stream, &graph) == CUDA_SUCCESS);
    CHECK(cu().cuGraphDestroy(graph) == CUDA_SUCCESS);
    CHECK(cu().cuMemFree(address) == CUDA_SUCCESS);
}

TEST_CASE("flags of an active primary context are refused by the first version") {
    const Device device;
    using SetFlags = CUresult (*)(CUdevice, unsigned);
    const unsigned yield = CU_CTX_SCHED_YIELD;
    CHECK(version_of<SetFlags>("cuDevicePrimaryCtxSetFlags", 7000)(0, yield) ==
          CUDA_ERROR_PRIMARY_CONTEXT_ACTIVE);
    CHECK(version_of<SetFlags>("cuDevicePrimaryCtxSetFlags", 11000)(0, yield) == CUDA_SUCCESS);
}

TEST_CASE("the first versions reset and release a primary context as the later ones do") {
    CUcontext context = nullptr;
    unsigned flags = 0;
    int active = -1;
    unsigned long long id = 0;
    using OfDevice = CUresult (*)(CUdevice);
    REQUIRE(cu().cuInit(0) == CUDA_SUCCESS);
    REQUIRE(cu().cuDevicePrimaryCtxRetain(&context, 0) == CUDA_SUCCESS);
    CHECK(version_of<OfDevice>("cuDevicePrimaryCtxReset", 7000)(0) == CUDA_SUCCESS);
    CHECK(cu().cuCtxGetId(context, &id) == CUDA_ERROR_CONTEXT_IS_DESTROYED);
    REQUIRE(cu().cuDevicePrimaryCtxRetain(&context, 0) == CUDA_SUCCESS);
    CHECK(version_of<OfDevice>("cuDevicePrimaryCtxRelease", 7000)(0) == CUDA_SUCCESS);
    CHECK(version_of<OfDevice>("cuDevicePrimaryCtxRelease", 7000)(0) == CUDA_SUCCESS);
    CHECK(cu().cuDevicePrimaryCtxGetState(0, &flags, &active) == CUDA_SUCCESS);
    CHECK(active == 0);
}

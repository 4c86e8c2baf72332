// pairs [ROUNDS]: the cost of driver calls in this program, natively or under `emm run`: a line
// `figure NAME VALUE` for each, the median of seven runs. The program knows nothing of emm.
#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <cuda.h>
#include <vector>

namespace {

constexpr int runs = 7;

void check(CUresult result, const char *call) {
    if (result != CUDA_SUCCESS) {
        std::fprintf(stderr, "%s: CUDA error %d\n", call, int(result));
        std::exit(1);
    }
}

template <class Call> double nanoseconds(int rounds, Call call) {
    std::vector<double> times;
    for (int run = 0; run < runs; run++) {
        const auto begin = std::chrono::steady_clock::now();
        for (int i = 0; i < rounds; i++) {
            call();
        }
        const std::chrono::duration<double, std::nano> taken =
            std::chrono::steady_clock::now() - begin;
        times.push_back(taken.count() / rounds);
    }
    std::nth_element(times.begin(), times.begin() + runs / 2, times.end());
    return times[runs / 2];
}

void pair(size_t bytes) {
    CUdeviceptr ptr = 0;
    check(cuMemAlloc(&ptr, bytes), "cuMemAlloc");
    check(cuMemFree(ptr), "cuMemFree");
}

void ordered_pair(size_t bytes, CUstream stream) {
    CUdeviceptr ptr = 0;
    check(cuMemAllocAsync(&ptr, bytes, stream), "cuMemAllocAsync");
    check(cuMemFreeAsync(ptr, stream), "cuMemFreeAsync");
}

void pool_pair(size_t bytes, CUmemoryPool pool, CUstream stream) {
    CUdeviceptr ptr = 0;
    check(cuMemAllocFromPoolAsync(&ptr, bytes, pool, stream), "cuMemAllocFromPoolAsync");
    check(cuMemFreeAsync(ptr, stream), "cuMemFreeAsync");
}

CUmemoryPool make_pool(CUdevice device, uint64_t threshold) {
    CUmemPoolProps properties = {};
    properties.allocType = CU_MEM_ALLOCATION_TYPE_PINNED;
    properties.location.type = CU_MEM_LOCATION_TYPE_DEVICE;
    properties.location.id = device;
    CUmemoryPool pool = nullptr;
    check(cuMemPoolCreate(&pool, &properties), "cuMemPoolCreate");
    check(cuMemPoolSetAttribute(pool, CU_MEMPOOL_ATTR_RELEASE_THRESHOLD, &threshold),
          "cuMemPoolSetAttribute");
    return pool;
}

// A page at a fixed address: the calls of allocators that map memory themselves.
void mapped_pair(CUdeviceptr ptr, size_t bytes, const CUmemAllocationProp &properties) {
    CUmemGenericAllocationHandle handle = 0;
    CUmemAccessDesc access = {};
    access.location = properties.location;
    access.flags = CU_MEM_ACCESS_FLAGS_PROT_READWRITE;
    check(cuMemCreate(&handle, bytes, &properties, 0), "cuMemCreate");
    check(cuMemMap(ptr, bytes, 0, handle, 0), "cuMemMap");
    check(cuMemSetAccess(ptr, bytes, &access, 1), "cuMemSetAccess");
    check(cuMemUnmap(ptr, bytes), "cuMemUnmap");
    check(cuMemRelease(handle), "cuMemRelease");
}

} // namespace

int main(int argc, char *argv[]) {
    const int rounds = argc > 1 ? std::atoi(argv[1]) : 2000;
    CUdevice device = 0;
    CUcontext context = nullptr;
    CUstream stream = nullptr;
    const auto begin = std::chrono::steady_clock::now();
    check(cuInit(0), "cuInit");
    check(cuDeviceGet(&device, 0), "cuDeviceGet");
    check(cuDevicePrimaryCtxRetain(&context, device), "cuDevicePrimaryCtxRetain");
    check(cuCtxSetCurrent(context), "cuCtxSetCurrent");
    pair(256);
    const std::chrono::duration<double, std::milli> start =
        std::chrono::steady_clock::now() - begin;
    check(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING), "cuStreamCreate");

    std::printf("figure first-free-ms %.1f\n", start.count());
    // Two pools of its own: one keeps freed memory, the other gives it back when the program waits.
    const CUmemoryPool keeping = make_pool(device, ~uint64_t(0)), giving = make_pool(device, 0);
    int version = 0;
    std::printf("figure cuDriverGetVersion-ns %.1f\n",
                nanoseconds(100 * rounds, [&] { cuDriverGetVersion(&version); }));
    for (const size_t bytes : {size_t(256), size_t(4096), size_t(1) << 16, size_t(1) << 20}) {
        std::printf("figure cuMemAlloc+cuMemFree-%zu-ns %.1f\n", bytes,
                    nanoseconds(rounds, [&] { pair(bytes); }));
        std::printf("figure cuMemAllocAsync+cuMemFreeAsync-%zu-ns %.1f\n", bytes,
                    nanoseconds(10 * rounds, [&] { ordered_pair(bytes, stream); }));
        std::printf("figure keeping-pool-%zu-ns %.1f\n", bytes,
                    nanoseconds(10 * rounds, [&] { pool_pair(bytes, keeping, stream); }));
        std::printf("figure giving-pool-%zu-ns %.1f\n", bytes,
                    nanoseconds(10 * rounds, [&] { pool_pair(bytes, giving, stream); }));
    }
    check(cuMemPoolDestroy(keeping), "cuMemPoolDestroy");
    check(cuMemPoolDestroy(giving), "cuMemPoolDestroy");
    constexpr size_t page = size_t(2) << 20;
    CUmemAllocationProp properties = {};
    properties.type = CU_MEM_ALLOCATION_TYPE_PINNED;
    properties.location.type = CU_MEM_LOCATION_TYPE_DEVICE;
    properties.location.id = device;
    CUdeviceptr address = 0;
    check(cuMemAddressReserve(&address, page, 0, 0, 0), "cuMemAddressReserve");
    std::printf("figure cuMemCreate+map-ns %.1f\n",
                nanoseconds(rounds / 10 + 1, [&] { mapped_pair(address, page, properties); }));
    check(cuMemAddressFree(address, page), "cuMemAddressFree");
    check(cuStreamDestroy(stream), "cuStreamDestroy");
    check(cuDevicePrimaryCtxRelease(device), "cuDevicePrimaryCtxRelease");
    return 0;
}

// The driver's own calls: cuMemAlloc, and cuMemAllocAsync on the device's default pool, which is
// set to keep freed memory.
#include "peer.h"

namespace emm::peers {
namespace {

struct AllocatorCalls : emm::cuda::Entries {
    AllocatorCalls() : Entries(&system_entry) { require_complete(*this); }

    EMM_CUDA_REQUIRED(cuMemAlloc);
    EMM_CUDA_REQUIRED(cuMemFree);
    EMM_CUDA_REQUIRED(cuMemAllocAsync);
    EMM_CUDA_REQUIRED(cuMemFreeAsync);
    EMM_CUDA_REQUIRED(cuDeviceGetDefaultMemPool);
    EMM_CUDA_REQUIRED(cuMemPoolSetAttribute);
};

struct DriverMemory {
    using Address = CUdeviceptr;
    EMM_CUDA_TYPE(cuMemAlloc) allocate_function = nullptr;
    EMM_CUDA_TYPE(cuMemFree) release_function = nullptr;

    Address allocate(size_t size) const {
        Address address;
        require(allocate_function(&address, size), "cuMemAlloc");
        return address;
    }
    void release(Address address, size_t) const { require(release_function(address), "cuMemFree"); }
};

struct AsyncMemory {
    using Address = CUdeviceptr;
    EMM_CUDA_TYPE(cuMemAllocAsync) allocate_function = nullptr;
    EMM_CUDA_TYPE(cuMemFreeAsync) release_function = nullptr;
    CUstream stream = nullptr;

    Address allocate(size_t size) const {
        Address address;
        require(allocate_function(&address, size, stream), "cuMemAllocAsync");
        return address;
    }
    void release(Address address, size_t) const {
        require(release_function(address, stream), "cuMemFreeAsync");
    }
};

struct Plain {
    using Memory = DriverMemory;
    Plain(const std::string &, Driver &, Purpose) {}
    Memory on(CUstream) const { return {calls.cuMemAlloc, calls.cuMemFree}; }

    const AllocatorCalls calls;
};

struct Async {
    using Memory = AsyncMemory;
    Async(const std::string &, Driver &, Purpose) {
        CUmemoryPool pool;
        cuuint64_t threshold = ~cuuint64_t(0);
        require(calls.cuDeviceGetDefaultMemPool(&pool, 0), "cuDeviceGetDefaultMemPool");
        require(calls.cuMemPoolSetAttribute(pool, CU_MEMPOOL_ATTR_RELEASE_THRESHOLD, &threshold),
                "cuMemPoolSetAttribute");
    }
    Memory on(CUstream stream) const {
        return {calls.cuMemAllocAsync, calls.cuMemFreeAsync, stream};
    }

    const AllocatorCalls calls;
};

} // namespace
} // namespace emm::peers

int main(int count, char **arguments) {
    using namespace emm::peers;
    return count > 1 && std::string(arguments[1]) == "cuMemAllocAsync"
               ? run_peer<Async>(count, arguments, system_entry)
               : run_peer<Plain>(count, arguments, system_entry);
}

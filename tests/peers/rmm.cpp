// RMM's memory resources: pool, arena and async, the first two over cudaMalloc. `NAME:BYTES` makes
// a resource of that size that cannot grow.
#include "peer.h"

#include <rmm/mr/arena_memory_resource.hpp>
#include <rmm/mr/cuda_async_memory_resource.hpp>
#include <rmm/mr/cuda_memory_resource.hpp>
#include <rmm/mr/pool_memory_resource.hpp>

#include <optional>

namespace emm::peers {
namespace {

template <class Resource> struct RmmMemory {
    using Address = void *;
    Resource *resource = nullptr;
    cudaStream_t stream = nullptr;

    Address allocate(size_t size) const {
        return resource->allocate(::cuda::stream_ref(stream), size, rmm::CUDA_ALLOCATION_ALIGNMENT);
    }
    void release(Address address, size_t size) const {
        resource->deallocate(::cuda::stream_ref(stream), address, size,
                             rmm::CUDA_ALLOCATION_ALIGNMENT);
    }
};

// Bytes behind the colon of the allocator's name, in RMM's granules.
std::optional<size_t> fixed_size(const std::string &name) {
    const size_t colon = name.find(':');
    if (colon == std::string::npos) {
        return std::nullopt;
    }
    return std::stoull(name.substr(colon + 1)) / 256 * 256;
}

size_t most_of(size_t bytes) {
    return bytes / 5 * 4 / 256 * 256;
}

struct Pool {
    using Memory = RmmMemory<rmm::mr::pool_memory_resource>;
    Pool(const std::string &name, Driver &driver, Purpose purpose)
        : pool(rmm::mr::cuda_memory_resource(), initial(name, driver, purpose), fixed_size(name)) {}
    Memory on(CUstream stream) { return {&pool, stream}; }

    static size_t initial(const std::string &name, Driver &driver, Purpose purpose) {
        const size_t smallest = 0;
        return fixed_size(name).value_or(purpose == Purpose::cost ? most_of(driver.free_memory())
                                                                  : smallest);
    }

    rmm::mr::pool_memory_resource pool;
};

struct Arena {
    using Memory = RmmMemory<rmm::mr::arena_memory_resource>;
    Arena(const std::string &name, Driver &driver, Purpose)
        : arena(rmm::mr::cuda_memory_resource(),
                fixed_size(name).value_or(most_of(driver.free_memory()))) {}
    Memory on(CUstream stream) { return {&arena, stream}; }

    rmm::mr::arena_memory_resource arena;
};

// Its release threshold is all memory unless another is given.
struct Async {
    using Memory = RmmMemory<rmm::mr::cuda_async_memory_resource>;
    Async(const std::string &, Driver &, Purpose) {}
    Memory on(CUstream stream) { return {&pool, stream}; }

    rmm::mr::cuda_async_memory_resource pool;
};

} // namespace
} // namespace emm::peers

int main(int count, char **arguments) {
    using namespace emm::peers;
    const std::string name = count > 1 ? arguments[1] : "";
    if (name.rfind("arena", 0) == 0) {
        return run_peer<Arena>(count, arguments, system_entry);
    }
    if (name.rfind("async", 0) == 0) {
        return run_peer<Async>(count, arguments, system_entry);
    }
    return run_peer<Pool>(count, arguments, system_entry);
}

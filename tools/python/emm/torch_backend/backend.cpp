// emm as PyTorch's CUDA allocator: c10::cuda::CUDACachingAllocator::CUDAAllocator over emm/emm.h;
// and as its allocator of pinned host memory: at::HostAllocator (pinned.h, with a lock of its own).
//
// emm.torch compiles this file against the PyTorch that is installed (_torch_backend.py), loads it
// and calls emm_torch_backend_install() or emm_torch_backend_install_pinned(). It needs the headers
// of PyTorch, of the CUDA runtime and of emm, and no CUDA compiler.
//
// A tensor's memory comes in one of two ways:
//
//   - Ordinarily it is one allocation of emm's, ordered on the stream that PyTorch names. While
//     PyTorch allocates to one of its pools (torch.cuda.MemPool), it is one from a named pool of
//     emm's (named_pools.h), which is that pool's own.
//   - For a pool that graphs are captured with, it is a part of a segment (pool.h) from such a
//     named pool. PyTorch may rewind it to a checkpoint, and a replayed graph writes to what has
//     been freed. So it keeps its segments until PyTorch has released it and its last tensor is
//     gone. The same goes for a MemPool with an allocator of its own, which gives the segments, or
//     with no_split.
//
// Locks: of a shard of BlockTable, of Counters, of Pools, of NamedPools, of PoolNames, of History,
// of the observers and of Exports. A thread holds one of them at a time, and none while it calls
// emm.
#include "allocator.h"
#include "pinned.h"

#include <c10/cuda/CUDAFunctions.h>

namespace emm::torch_backend {
namespace {

Allocator *instance = nullptr;              // lives as long as the process
PinnedAllocator *pinned_instance = nullptr; // the same

} // namespace

void delete_block(void *ptr) {
    instance->raw_delete(ptr);
}

void delete_pinned(void *ptr) {
    pinned_instance->give(ptr);
}

} // namespace emm::torch_backend

// Makes emm PyTorch's allocator of pinned memory. Memory that was allocated before stays with its
// allocator. With `name`, memory comes from the pool of that name (emm_context_named) in each
// device's primary context, made with `options`; both are copied, and may be NULL. Returns NULL, or
// the reason of a failure: a text that lasts. One thread at a time.
extern "C" __attribute__((visibility("default"))) const char *
emm_torch_backend_install_pinned(const char *name, const char *options) noexcept {
    using namespace emm::torch_backend;
    static std::string problem;
    try {
        if (!pinned_instance) {
            at::HostAllocator *previous = at::getHostAllocator(at::kCUDA);
            TORCH_CHECK(previous, "PyTorch has no allocator of pinned memory");
            std::optional<PoolName> pool;
            if (name) {
                pool = pool_name(name, options);
            }
            pinned_instance = new PinnedAllocator(previous, std::move(pool));
            at::setHostAllocator(at::kCUDA, pinned_instance);
        }
        return nullptr;
    } catch (const std::exception &error) {
        problem = error.what();
        return problem.c_str();
    }
}

// Makes emm PyTorch's allocator. Memory that was allocated before stays with its allocator. Returns
// NULL, or the reason of a failure: a text that lasts. One thread at a time.
extern "C" __attribute__((visibility("default"))) const char *emm_torch_backend_install() noexcept {
    using namespace emm::torch_backend;
    static std::string problem;
    try {
        if (instance) {
            return nullptr;
        }
        CUDAAllocator *previous = caching::allocator.load();
        TORCH_CHECK(previous, "PyTorch has no CUDA allocator");
        auto made = std::make_unique<Allocator>(previous);
        if (previous->initialized()) {
            made->init(c10::cuda::device_count());
        }
        instance = made.release();
        caching::allocator.store(instance);
        c10::SetAllocator(c10::DeviceType::CUDA, instance);
        return nullptr;
    } catch (const std::exception &error) {
        problem = error.what();
        return problem.c_str();
    }
}

// Names emm's pool behind PyTorch's pool (first, second), before its first use. `options`, as in a
// spec, may be NULL. Any thread, once emm is PyTorch's allocator.
extern "C" __attribute__((visibility("default"))) void
emm_torch_backend_name_pool(uint64_t first, uint64_t second, const char *name,
                            const char *options) noexcept {
    using namespace emm::torch_backend;
    instance->name_pool({first, second}, pool_name(name, options));
}

// emm's pool behind PyTorch's pool, made if needed. NULL: PyTorch has no such pool on the device,
// the pool has an allocator of its own, or emm_last_error() says why.
extern "C" __attribute__((visibility("default"))) emm_context *
emm_torch_backend_pool_context(int32_t device, uint64_t first, uint64_t second) noexcept {
    using namespace emm::torch_backend;
    try {
        return instance->pool_context(DeviceIndex(device), {first, second});
    } catch (const std::exception &) {
        return nullptr;
    }
}

// PyTorch's caching allocator, called as its own C++ code calls it: no Python takes part.
#include "peer.h"

#include <c10/cuda/CUDACachingAllocator.h>

namespace emm::peers {
namespace {

namespace allocator = c10::cuda::CUDACachingAllocator;

// A block goes back to the stream that it was allocated on.
struct TorchMemory {
    using Address = void *;
    allocator::CUDAAllocator *torch = nullptr;
    cudaStream_t stream = nullptr;

    Address allocate(size_t size) const { return torch->raw_alloc_with_stream(size, stream); }
    void release(Address address, size_t) const { torch->raw_delete(address); }
};

struct Torch {
    using Memory = TorchMemory;
    Torch(const std::string &, Driver &, Purpose) { allocator::init(1); }
    Memory on(CUstream stream) const { return {allocator::get(), stream}; }
};

} // namespace
} // namespace emm::peers

int main(int count, char **arguments) {
    return emm::peers::run_peer<emm::peers::Torch>(count, arguments, emm::peers::system_entry);
}

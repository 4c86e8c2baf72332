// Behaviour: the promises of CUDA's documentation about managed memory: its place, and discarded
// memory.
#include "pending_work.h"

namespace {

using Prefetch = CUresult(CUDAAPI *)(CUdeviceptr, size_t, CUdevice, CUstream);
using Discard = CUresult(CUDAAPI *)(CUdeviceptr *, size_t *, size_t, unsigned long long, CUstream);

struct ManagedBlock {
    explicit ManagedBlock(size_t size) {
        REQUIRE(cu().cuMemAllocManaged(&address, size, CU_MEM_ATTACH_GLOBAL) == CUDA_SUCCESS);
    }
    ~ManagedBlock() { cu().cuMemFree(address); }
    ManagedBlock(const ManagedBlock &) = delete;
    ManagedBlock &operator=(const ManagedBlock &) = delete;
    operator CUdeviceptr() const { return address; }
    CUdeviceptr address = 0;
};

constexpr size_t size = 1 << 20;

} // namespace

TEST_CASE("a prefetch is of managed memory, to a device that there is, and keeps the bytes") {
    const Device device;
    const Stream stream;
    const ManagedBlock block(size);
    const Block other(size);
    const auto prefetch = cu().optional<Prefetch>("cuMemPrefetchAsync", 12000);
    REQUIRE(prefetch);
    CHECK(cu().cuMemsetD8(block, 7, size) == CUDA_SUCCESS);
    CHECK(prefetch(block, size, 0, stream.handle) == CUDA_SUCCESS);
    CHECK(cu().cuStreamSynchronize(stream.handle) == CUDA_SUCCESS);
    CHECK(byte_at(block + size - 1) == 7);
    CHECK(prefetch(block, size, CU_DEVICE_CPU, stream.handle) == CUDA_SUCCESS);
    CHECK(prefetch(block, size, 999, stream.handle) == CUDA_ERROR_INVALID_DEVICE);
    CHECK(prefetch(other, size, 0, stream.handle) == CUDA_ERROR_INVALID_VALUE);
}

TEST_CASE("what is discarded is memory to write to, and the legacy stream discards nothing") {
    const Device device;
    const Stream stream;
    const ManagedBlock block(size);
    const auto discard = cu().optional<Discard>("cuMemDiscardBatchAsync", 13000);
    if (!discard) {
        return; // before CUDA 13
    }
    CUdeviceptr start = block;
    size_t bytes = size;
    CHECK(cu().cuMemsetD8Async(block, 7, size, stream.handle) == CUDA_SUCCESS);
    CHECK(discard(&start, &bytes, 1, 0, stream.handle) == CUDA_SUCCESS);
    CHECK(cu().cuMemsetD8Async(block + 4096, 8, 4096, stream.handle) == CUDA_SUCCESS);
    CHECK(cu().cuStreamSynchronize(stream.handle) == CUDA_SUCCESS);
    CHECK(byte_at(block + 4096) == 8);
    if (cu().simulated()) { // a GPU may have kept them
        CHECK(byte_at(block) == 0);
    }
    CHECK(discard(&start, &bytes, 1, 0, nullptr) != CUDA_SUCCESS);
}

// Pinned host memory, and registered memory of the program's own: blocks are copied to and from
// them.
#include "worker.h"

#include <algorithm>
#include <cstdlib>
#include <memory>

namespace {

constexpr size_t page = 4096;

} // namespace

void Worker::pin_or_unpin() {
    auto &pinned = mine_->pinned;
    if (pinned.size() == most_pinned || (!pinned.empty() && chance_.one_in(2))) {
        const Pinned freed = taken_from(pinned, below(pinned.size()));
        return check(cu.cuMemFreeHost(freed.host), "cuMemFreeHost");
    }
    const unsigned flags[] = {0, CU_MEMHOSTALLOC_PORTABLE, CU_MEMHOSTALLOC_DEVICEMAP};
    Pinned made;
    made.size = std::min(chance_.size(), size_t(1) << 20);
    check(chance_.one_in(3) ? cu.cuMemAllocHost(&made.host, made.size)
                            : cu.cuMemHostAlloc(&made.host, made.size, flags[below(3)]),
          "pinned memory");
    static_cast<char *>(made.host)[0] = static_cast<char *>(made.host)[made.size - 1] = 'x';
    pinned.push_back(made);
}

// The copy may be under way when the memory is freed; the free waits for it.
void Worker::use_pinned() {
    if (mine_->pinned.empty()) {
        return;
    }
    const size_t number = below(mine_->pinned.size());
    const Pinned pinned = mine_->pinned[number];
    const Block &block = mine_->blocks[below(mine_->blocks.size())];
    const Ends ends(block.ptr, block.size);
    const size_t size = std::min(pinned.size, ends.words * size_t(4)) / 4 * 4;
    check(cu.cuMemcpyDtoHAsync(pinned.host, block.ptr, size, block.stream), "cuMemcpyDtoHAsync");
    if (chance_.one_in(2)) {
        check(cu.cuStreamSynchronize(block.stream), "cuStreamSynchronize");
        const unsigned *const words = static_cast<unsigned *>(pinned.host);
        if (std::count(words, words + size / 4, block.pattern) != ptrdiff_t(size / 4)) {
            throw std::runtime_error("pinned memory has not what was copied there");
        }
    } else if (chance_.one_in(2)) {
        taken_from(mine_->pinned, number);
        check(cu.cuMemFreeHost(pinned.host), "cuMemFreeHost");
    } else {
        check(cu.cuStreamSynchronize(block.stream), "cuStreamSynchronize");
    }
}

void Worker::register_own() {
    const Block &block = mine_->blocks[below(mine_->blocks.size())];
    const std::unique_ptr<void, decltype(&std::free)> host(std::aligned_alloc(page, page),
                                                           &std::free);
    const size_t size = std::min(block.size, page) / 4 * 4;
    CUdeviceptr on_device = 0;
    check(cu.cuMemHostRegister(host.get(), page, CU_MEMHOSTREGISTER_DEVICEMAP),
          "cuMemHostRegister");
    check(cu.cuMemHostGetDevicePointer(&on_device, host.get(), 0), "cuMemHostGetDevicePointer");
    check(cu.cuMemcpyDtoHAsync(host.get(), block.ptr, size, block.stream), "cuMemcpyDtoHAsync");
    check(cu.cuStreamSynchronize(block.stream), "cuStreamSynchronize");
    check(cu.cuMemHostUnregister(host.get()), "cuMemHostUnregister");
    const unsigned *const words = static_cast<unsigned *>(host.get());
    if (std::count(words, words + size / 4, block.pattern) != ptrdiff_t(size / 4)) {
        throw std::runtime_error("registered memory has not what was copied there");
    }
}

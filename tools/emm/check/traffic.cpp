#include "check/traffic.h"

#include "check/gpu.h"
#include "observe/text.h"

#include <algorithm>
#include <atomic>
#include <cstdint>
#include <fmt/format.h>

namespace emm::tool::check {
namespace {

std::atomic<uint64_t> allocated{0}, freed{0};

uint64_t device_memory() {
    size_t free = 0, total = 0;
    return driver_calls().cuMemGetInfo(&free, &total) == CUDA_SUCCESS ? total : UINT64_MAX;
}

} // namespace

void count_allocated(size_t size) {
    allocated += size;
}

void count_freed(size_t size) {
    freed += size;
}

std::string why_out_of_memory() {
    const uint64_t gone = freed, live = allocated - gone;
    if (gone < device_memory() / 2 || live > gone) {
        return "";
    }
    return fmt::format(" (the suite has freed {} bytes before and has {} live: does memfree give "
                       "memory back, or use it again?)",
                       gone, live);
}

void skip_below_limit(emm_status status, size_t total) {
    constexpr size_t enough = 512 * mib;
    if (status == EMM_E_OUT_OF_MEMORY && total < std::min<uint64_t>(enough, device_memory())) {
        throw Skipped(fmt::format("it needs more than the {} that a limit leaves the plugin",
                                  observe::bytes_text(total)));
    }
}

void LiveSet::add(size_t size) {
    const emm_deviceptr ptr = hosted_.alloc(size, stream_);
    const auto after = blocks_.lower_bound(ptr);
    expect(after == blocks_.end() || ptr + size <= after->first,
           "a block of {} bytes at 0x{:x} reaches into the live one at 0x{:x}", size, ptr,
           after == blocks_.end() ? 0 : after->first);
    if (after != blocks_.begin()) {
        const auto before = std::prev(after);
        expect(before->first + before->second.size <= ptr,
               "a block at 0x{:x} lies in the live one of {} bytes at 0x{:x}", ptr,
               before->second.size, before->first);
    }
    blocks_[ptr] = {size, ++next_};
    mark(stream_, ptr, size, next_);
}

void LiveSet::check(const Blocks::value_type &block) const {
    expect(is_marked(stream_, block.first, block.second.size, block.second.value),
           "the live block of {} bytes at 0x{:x} has changed", block.second.size, block.first);
}

void LiveSet::check() const {
    for (const auto &block : blocks_) {
        check(block);
    }
}

void LiveSet::remove(size_t index) {
    const auto block = std::next(blocks_.begin(), static_cast<std::ptrdiff_t>(index));
    check(*block);
    hosted_.free(block->first, block->second.size, stream_);
    blocks_.erase(block);
}

void LiveSet::clear() {
    while (!blocks_.empty()) {
        remove(0);
    }
}

} // namespace emm::tool::check

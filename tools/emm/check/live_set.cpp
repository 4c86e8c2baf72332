#include "check/live_set.h"

namespace emm::tool::check {

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

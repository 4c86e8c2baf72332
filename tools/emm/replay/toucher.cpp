#include "replay/toucher.h"

#include <algorithm>
#include <cstring>

namespace emm::tool {
namespace {

constexpr uint64_t word = 4;

// A different pattern for each block, and never 0, which fresh memory tends to hold.
uint32_t pattern_of(const Block &block) {
    return (block.number + 1) * 2654435761u;
}

// The last whole word of a block that has more than one.
uint64_t tail_offset(const Block &block) {
    return block.size / word * word - word;
}

bool has_tail(const Block &block) {
    return block.size >= 2 * word;
}

} // namespace

Toucher::Toucher() {
    void *memory = nullptr;
    EMM_REQUIRE_CUDA(cuMemHostAlloc, &memory, slots_a_part * part_count * sizeof(Copied), 0);
    copied_ = static_cast<Copied *>(memory);
}

Toucher::~Toucher() {
    for (Part &part : parts_) {
        spare_events_.insert(spare_events_.end(), part.events.begin(), part.events.end());
    }
    for (CUevent event : spare_events_) {
        driver_calls().cuEventDestroy(event);
    }
    driver_calls().cuMemFreeHost(copied_);
}

void Toucher::write(const Block &block, emm_deviceptr address, CUstream stream) {
    const uint32_t pattern = pattern_of(block);
    if (block.size < word) {
        EMM_REQUIRE_CUDA(cuMemsetD8Async, address, static_cast<unsigned char>(pattern), block.size,
                         stream);
        return;
    }
    EMM_REQUIRE_CUDA(cuMemsetD32Async, address, pattern, 1, stream);
    if (has_tail(block)) {
        EMM_REQUIRE_CUDA(cuMemsetD32Async, address + tail_offset(block), pattern, 1, stream);
    }
}

void Toucher::check(const Block &block, emm_deviceptr address, CUstream stream) {
    if (parts_[current_].used == slots_a_part) {
        close(parts_[current_]);
        current_ = (current_ + 1) % part_count;
        compare(parts_[current_]);
    }
    Part &part = parts_[current_];
    Copied &copied = copied_[current_ * slots_a_part + part.used];
    Expected &expected = part.expected[part.used];
    const auto head_bytes = static_cast<uint32_t>(std::min(block.size, word));
    expected = {block.size < word ? (pattern_of(block) & 0xff) * 0x01010101u : pattern_of(block),
                head_bytes, has_tail(block) ? static_cast<uint32_t>(word) : 0};
    EMM_REQUIRE_CUDA(cuMemcpyDtoHAsync, &copied.head, address, head_bytes, stream);
    if (expected.tail_bytes != 0) {
        EMM_REQUIRE_CUDA(cuMemcpyDtoHAsync, &copied.tail, address + tail_offset(block), word,
                         stream);
    }
    part.used++;
    if (std::find(part.streams.begin(), part.streams.end(), stream) == part.streams.end()) {
        part.streams.push_back(stream);
    }
}

void Toucher::finish() {
    close(parts_[current_]);
    for (Part &part : parts_) {
        compare(part);
    }
}

// The part takes no further copies; events tell when its copies are done.
void Toucher::close(Part &part) {
    for (CUstream stream : part.streams) {
        part.events.push_back(take_event());
        EMM_REQUIRE_CUDA(cuEventRecord, part.events.back(), stream);
    }
    part.streams.clear();
}

void Toucher::compare(Part &part) {
    for (; !part.events.empty(); part.events.pop_back()) {
        EMM_REQUIRE_CUDA(cuEventSynchronize, part.events.back());
        spare_events_.push_back(part.events.back());
    }
    const Copied *copied = copied_ + (&part - parts_.data()) * slots_a_part;
    for (size_t i = 0; i < part.used; i++) {
        const Expected &expected = part.expected[i];
        const bool good =
            std::memcmp(&copied[i].head, &expected.pattern, expected.head_bytes) == 0 &&
            std::memcmp(&copied[i].tail, &expected.pattern, expected.tail_bytes) == 0;
        mismatches_ += good ? 0 : 1;
    }
    part.used = 0;
}

CUevent Toucher::take_event() {
    if (spare_events_.empty()) {
        CUevent event = nullptr;
        EMM_REQUIRE_CUDA(cuEventCreate, &event, CU_EVENT_DISABLE_TIMING);
        return event;
    }
    CUevent event = spare_events_.back();
    spare_events_.pop_back();
    return event;
}

} // namespace emm::tool

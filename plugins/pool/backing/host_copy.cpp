#include "host_copy.h"

#include "cuda/relaxed.h"
#include "heap/segment.h"

#include <algorithm>
#include <cstring>
#include <new>
#include <sys/mman.h>

namespace emm::pool {
namespace {

// Large enough for the bus's full speed, and small enough that a host with little memory left, or a
// low `host_max`, can pin most of its room.
constexpr uint64_t chunk_bytes = 256ull << 20;

} // namespace

// Existing chunks are used first.
void HostCopy::grow(uint64_t bytes) {
    for (const Chunk &chunk : chunks_) {
        bytes -= std::min(bytes, chunk.bytes);
    }
    bool pins = context_.driver.serves_host();
    while (bytes > 0) {
        const uint64_t size = std::min(round_up(bytes, segment_granule), chunk_bytes);
        pins = pins && add(size, true);
        if (!pins && !add(size, false)) {
            throw std::bad_alloc();
        }
        bytes -= std::min(bytes, size);
    }
}

bool HostCopy::add(uint64_t bytes, bool pinned) {
    chunks_.reserve(chunks_.size() + 1);
    void *memory = nullptr;
    if (pinned) {
        const Relaxed relaxed(context_.driver);
        if (relaxed.result() != CUDA_SUCCESS || !bound_.claim(bytes)) {
            return false;
        }
        const HostNode::Preferred near(node_);
        if (context_.driver.cuMemHostAlloc(&memory, bytes, 0) != CUDA_SUCCESS) {
            bound_.give_back(bytes);
            return false;
        }
        pinned_ += bytes;
    } else {
        memory = mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
        if (memory == MAP_FAILED) {
            return false;
        }
    }
    chunks_.push_back({static_cast<char *>(memory), bytes, pinned});
    return true;
}

CUresult HostCopy::save(const std::vector<Range> &ranges,
                        const std::function<bool(uint64_t)> &on_saved) {
    uint64_t bytes = 0;
    for (const Range &range : ranges) {
        bytes += range.bytes();
    }
    if (!wait_until_unused()) {
        return CUDA_ERROR_UNKNOWN;
    }
    grow(bytes);
    std::vector<uint64_t> ends;
    try {
        ends = begin_to_save(ranges, part_bytes(bytes));
    } catch (const std::bad_alloc &) { // copies may be under way
        copies_.wait();
        saved_.clear();
        throw;
    }
    bool goes_on = !copies_.has_failed();
    uint64_t saved_end = 0;
    for (size_t i = 0; i < ends.size() && goes_on; i++) {
        goes_on = copies_.await_mark(i);
        saved_end = goes_on ? ends[i] : saved_end;
        goes_on = goes_on && on_saved(saved_end);
    }
    const CUresult result = copies_.wait();
    if (result != CUDA_SUCCESS) {
        drop_from(saved_end);
    }
    return result == CUDA_SUCCESS && !on_saved(UINT64_MAX) ? CUDA_ERROR_NOT_PERMITTED : result;
}

// Each part ends with a copy.
void HostCopy::drop_from(uint64_t address) noexcept {
    while (!saved_.empty() && saved_.back().range.end > address) {
        saved_.pop_back();
    }
}

// Returns the ends of the parts that can be waited for.
std::vector<uint64_t> HostCopy::begin_to_save(const std::vector<Range> &ranges,
                                              uint64_t part_bytes) {
    saved_.clear();
    saved_.reserve(ranges.size() + chunks_.size());
    std::vector<uint64_t> ends;
    size_t chunk = 0;
    uint64_t used = 0; // bytes used in the present chunk
    uint64_t in_part = 0;
    for (Range rest : ranges) {
        while (rest.bytes() > 0) {
            if (used == chunks_[chunk].bytes) {
                chunk++;
                used = 0;
            }
            const uint64_t size =
                std::min({rest.bytes(), chunks_[chunk].bytes - used, part_bytes - in_part});
            char *const host = chunks_[chunk].memory + used;
            copies_.to_host(host, rest.begin, size);
            saved_.push_back({{rest.begin, rest.begin + size}, host});
            rest.begin += size;
            used += size;
            in_part += size;
            if (in_part == part_bytes) {
                in_part = 0;
                ends.push_back(rest.begin);
                if (!copies_.mark()) {
                    ends.pop_back();
                }
            }
        }
    }
    return ends;
}

void HostCopy::load(Range range) {
    auto saved = std::partition_point(saved_.begin(), saved_.end(), [&](const Saved &each) {
        return each.range.end <= range.begin;
    });
    for (; saved != saved_.end() && saved->range.begin < range.end; ++saved) {
        const uint64_t begin = std::max(range.begin, saved->range.begin),
                       end = std::min(range.end, saved->range.end);
        copies_.to_device(begin, saved->host + (begin - saved->range.begin), end - begin);
    }
}

bool HostCopy::read(Range range, char *to) const {
    const auto first = std::find_if(saved_.begin(), saved_.end(), [&](const Saved &each) {
        return each.range.end > range.begin;
    });
    auto last = first;
    uint64_t known = range.begin;
    while (last != saved_.end() && last->range.begin <= known && known < range.end) {
        known = last++->range.end;
    }
    if (known < range.end) {
        return false;
    }
    std::for_each(first, last, [&](const Saved &each) {
        const uint64_t begin = std::max(range.begin, each.range.begin),
                       end = std::min(range.end, each.range.end);
        std::memcpy(to + (begin - range.begin), each.host + (begin - each.range.begin),
                    end - begin);
    });
    return true;
}

// If the context is dead, the driver gives its pinned memory back by itself. If the driver refuses,
// it is asked once more at the next end of a pause or of the pool.
void HostCopy::release(size_t kept_chunks) noexcept {
    saved_.clear();
    if (chunks_.size() > kept_chunks && wait_until_unused()) {
        chunks_.erase(std::remove_if(chunks_.begin() + ptrdiff_t(kept_chunks), chunks_.end(),
                                     [this](const Chunk &chunk) { return give_back(chunk); }),
                      chunks_.end());
    }
}

bool HostCopy::give_back(const Chunk &chunk) noexcept {
    if (!chunk.pinned) {
        munmap(chunk.memory, chunk.bytes);
        return true;
    }
    if (context_.lives()) {
        const Relaxed relaxed(context_.driver);
        if (!is_returned(context_.driver.cuMemFreeHost(chunk.memory))) {
            return false;
        }
    }
    pinned_ -= chunk.bytes;
    bound_.give_back(chunk.bytes);
    return true;
}

} // namespace emm::pool

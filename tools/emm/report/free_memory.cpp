#include "report/address_map.h"

#include <algorithm>
#include <queue>

namespace emm::tool {
namespace {

enum class Owner : uint8_t { live, own, other, unordered };

// Where a block lay, and until when.
struct Stay {
    uint64_t begin, end;
    uint32_t last_step; // no_step: still live
    Owner owner;
};

class Earlier {
public:
    bool operator()(const Stay &one, const Stay &other) const {
        return one.last_step < other.last_step;
    }
};

Owner owner_of(const History &history, const Allocation &block, uint16_t asking, uint32_t step) {
    if (block.last_step >= step) { // no_step too
        return Owner::live;
    }
    if (block.freed_on == asking) {
        return Owner::own;
    }
    return history.streams.is_none(block.freed_on) ? Owner::unordered : Owner::other;
}

// Sorted; of several at the same place, only the last.
std::vector<Stay> stays_before(const History &history, const std::vector<uint64_t> &addresses,
                               uint32_t step) {
    const uint16_t asking = history.block_of(step).stream;
    std::vector<Stay> stays;
    for (size_t i = 0; i < addresses.size(); i++) {
        const Allocation &block = history.blocks[i];
        if (addresses[i] == no_address || block.first_step >= step || block.size == 0) {
            continue;
        }
        const uint64_t begin = addresses[i], room = no_address - begin;
        const Owner owner = owner_of(history, block, asking, step);
        stays.push_back({begin, begin + std::min(block.size, room),
                         owner == Owner::live ? no_step : block.last_step, owner});
    }
    std::sort(stays.begin(), stays.end(), [](const Stay &one, const Stay &other) {
        return one.begin != other.begin ? one.begin < other.begin
               : one.end != other.end   ? one.end < other.end
                                        : one.last_step > other.last_step;
    });
    const auto is_same = [](const Stay &one, const Stay &other) {
        return one.begin == other.begin && one.end == other.end;
    };
    stays.erase(std::unique(stays.begin(), stays.end(), is_same), stays.end());
    return stays;
}

// Adds up parts of the addresses, in their order.
class Pieces {
public:
    void add(uint64_t begin, uint64_t end, Owner owner) {
        const bool goes_on = owner == owner_ && begin - end_ <= end_ - last_begin_;
        piece_ = goes_on ? piece_ + (end - end_) : end - begin;
        owner_ = owner;
        last_begin_ = begin;
        end_ = end;
        if (FreePart *const part = part_of(owner)) {
            part->bytes += end - begin;
            part->largest = std::max(part->largest, piece_);
        }
    }

    FreeMemory memory() const { return memory_; }

private:
    FreePart *part_of(Owner owner) {
        switch (owner) {
        case Owner::own:
            return &memory_.own;
        case Owner::other:
            return &memory_.other;
        case Owner::unordered:
            return &memory_.unordered;
        case Owner::live:
            break;
        }
        return nullptr;
    }

    FreeMemory memory_;
    Owner owner_ = Owner::live;
    uint64_t last_begin_ = 0, end_ = 0, piece_ = 0;
};

} // namespace

// Goes through the addresses. The block that was there last is on top of the queue.
FreeMemory free_memory_before(const History &history, const std::vector<uint64_t> &addresses,
                              uint32_t step) {
    const std::vector<Stay> stays = stays_before(history, addresses, step);
    std::priority_queue<Stay, std::vector<Stay>, Earlier> here;
    Pieces pieces;
    uint64_t at = 0;
    for (size_t next = 0; next < stays.size() || !here.empty();) {
        if (here.empty()) {
            at = stays[next].begin;
        }
        for (; next < stays.size() && stays[next].begin == at; next++) {
            here.push(stays[next]);
        }
        const Stay &top = here.top();
        const uint64_t end = next < stays.size() ? std::min(top.end, stays[next].begin) : top.end;
        if (end > at) {
            pieces.add(at, end, top.owner);
            at = end;
        }
        while (!here.empty() && here.top().end <= at) {
            here.pop();
        }
    }
    return pieces.memory();
}

} // namespace emm::tool

#pragma once

#include "clock.h"
#include "driver.h"
#include "recording.h"

#include <algorithm>
#include <cstddef>
#include <vector>

namespace emm::peers {

struct Footprint {
    size_t live = 0, reserved = 0;
};

// Figures of the first half of the events, and of the second half.
struct DriverHalves {
    DriverUse first, second;
};

// A recording on one kind of memory, with a stream of memory for each of its streams, event by
// event in its own order. So the same blocks live at the same time with every allocator.
template <class Memory> class Player {
public:
    Player(const Recording &recording, Driver &driver, std::vector<CUstream> streams,
           std::vector<Memory> memories)
        : recording_(recording), driver_(driver), streams_(std::move(streams)),
          memories_(std::move(memories)), blocks_(recording.blocks) {}

    // The ticks of each event in the allocator. Blocks that are live at the end are released, not
    // timed.
    std::vector<uint64_t> timed() {
        std::vector<uint64_t> spent;
        spent.reserve(recording_.events.size());
        for (const Event &event : recording_.events) {
            order(event);
            const uint64_t began = observe::event_ticks_unordered();
            play(event);
            spent.push_back(observe::event_ticks_unordered() - began);
        }
        release_rest();
        return spent;
    }

    // The events' calls of a metered driver.
    DriverHalves metered() {
        DriverHalves halves;
        const size_t middle = recording_.events.size() / 2;
        for (size_t i = 0; i < recording_.events.size(); i++) {
            order(recording_.events[i]);
            const DriverUse before = driver_.use();
            play(recording_.events[i]);
            const DriverUse after = driver_.use();
            DriverUse &half = i < middle ? halves.first : halves.second;
            half.calls += after.calls - before.calls;
            half.ns += after.ns - before.ns;
        }
        release_rest();
        return halves;
    }

    // Only the events: one reading of the clock for all of them.
    double seconds() {
        const double began = tool::seconds_now();
        for (const Event &event : recording_.events) {
            play(event);
        }
        const double passed = tool::seconds_now() - began;
        release_rest();
        return passed;
    }

    // For each event, the device's memory that is taken after it, out of `free_before`; and the
    // ticks that all events have spent in the allocator.
    std::vector<Footprint> watched(size_t free_before, uint64_t &ret_spent) {
        ret_spent = 0;
        std::vector<Footprint> footprints;
        footprints.reserve(recording_.events.size());
        size_t live = 0;
        for (const Event &event : recording_.events) {
            order(event);
            const uint64_t began = observe::event_ticks_unordered();
            play(event);
            ret_spent += observe::event_ticks_unordered() - began;
            live = event.is_free ? live - event.size : live + event.size;
            footprints.push_back(
                {live, free_before - std::min(free_before, driver_.free_memory())});
        }
        release_rest();
        return footprints;
    }

private:
    struct Block {
        typename Memory::Address address;
        size_t size; // 0: not live
        uint32_t stream;
    };

    void play(const Event &event) {
        Block &block = blocks_[event.block];
        if (event.is_free) {
            memories_[event.stream].release(block.address, event.size);
            block.size = 0;
        } else {
            block = {memories_[event.stream].allocate(event.size), event.size, event.stream};
        }
    }
    // A free on another stream than the allocation's is the caller's to order.
    void order(const Event &event) {
        const uint32_t owner = blocks_[event.block].stream;
        if (event.is_free && owner != event.stream) {
            driver_.order(streams_[owner], streams_[event.stream]);
        }
    }
    void release_rest() {
        for (Block &block : blocks_) {
            if (block.size != 0) {
                memories_[block.stream].release(block.address, block.size);
                block.size = 0;
            }
        }
    }

    const Recording &recording_;
    Driver &driver_;
    std::vector<CUstream> streams_;
    std::vector<Memory> memories_;
    std::vector<Block> blocks_;
};

} // namespace emm::peers

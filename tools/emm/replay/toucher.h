#pragma once

#include "driver.h"

#include <emm/emm.h>

#include <array>
#include <atomic>
#include <cstdint>
#include <vector>

namespace emm::tool {

// One allocation of the trace during its replay. The thread that allocates publishes the address
// after it has put its write on the stream; the thread that frees may have to wait for the address.
class Block {
public:
    static constexpr emm_deviceptr pending = 0, failed = ~emm_deviceptr(0);

    void publish(emm_deviceptr address) {
        address_.store(address, std::memory_order_release);
        address_.notify_all();
    }
    emm_deviceptr wait() const {
        address_.wait(pending, std::memory_order_acquire);
        return address_.load(std::memory_order_acquire);
    }
    // Marks the block as freed: blocks without the mark are the ones that the trace never frees.
    void forget() { address_.store(failed, std::memory_order_relaxed); }
    void renew() { address_.store(pending, std::memory_order_relaxed); } // to be allocated again
    emm_deviceptr address() const { return address_.load(std::memory_order_acquire); }

    uint64_t size = 0;
    uint32_t number = 0;
    uint16_t stream = 0;

private:
    std::atomic<emm_deviceptr> address_{pending};
};

// Uses blocks as a program would: writes a pattern of the block's own to its first and last bytes
// after each allocation, and copies them back before each free, on the streams concerned. No call
// waits: copies go to a ring of pinned slots, and a part of the ring is compared only before its
// next use. Each thread has one.
class Toucher {
public:
    Toucher();
    ~Toucher();
    Toucher(const Toucher &) = delete;
    Toucher &operator=(const Toucher &) = delete;

    void write(const Block &block, emm_deviceptr address, CUstream stream);
    void check(const Block &block, emm_deviceptr address, CUstream stream);

    // Compares all outstanding copies.
    void finish();

    // Blocks whose bytes were not the ones written.
    uint64_t mismatches() const { return mismatches_; }

private:
    struct Expected {
        uint32_t pattern = 0;
        uint32_t head_bytes = 0, tail_bytes = 0; // 1 to 4; 0: not copied
    };
    struct Copied {
        uint32_t head, tail;
    };
    static constexpr size_t slots_a_part = 512, part_count = 8;
    struct Part {
        std::array<Expected, slots_a_part> expected;
        size_t used = 0;
        std::vector<CUstream> streams; // the streams of its copies
        std::vector<CUevent> events;   // recorded behind them once the part is full
    };

    void close(Part &part);
    void compare(Part &part);
    CUevent take_event();

    std::array<Part, part_count> parts_;
    size_t current_ = 0;
    Copied *copied_ = nullptr; // pinned
    std::vector<CUevent> spare_events_;
    uint64_t mismatches_ = 0;
};

} // namespace emm::tool

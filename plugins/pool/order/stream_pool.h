// A free pool with what decides when its memory is complete: a stream and its events, the context,
// or a capture.
#pragma once

#include "heap/block_or_slot.h"
#include "heap/free_pool.h"

#include <atomic>
#include <cuda.h>
#include <vector>

namespace emm::pool {

class Captures;
class CrossContext;
class StreamOrder;
class Streams;
struct StreamPool;

// An event that was recorded after every free with a tag up to `tag`.
struct RecordedEvent {
    CUevent event = nullptr;
    uint64_t tag = 0;
    Link<RecordedEvent> link;
};

// One more stream, or capture, that a block is used on.
struct Use {
    StreamPool *pool; // NULL: no event can be recorded on that stream, so all work counts
    Capture *capture; // NULL: none
};

// The further uses of one allocation, as record_use named them, and how often it is exported.
struct UseRecord {
    BlockOrSlot allocation;
    StreamPool *home = nullptr; // where it was freed
    uint32_t exports = 0;       // while there are any, it goes nowhere
    bool all_work = false;      // nothing less than the context's event will do
    uint64_t tag = 0;
    std::vector<Use> uses;
    Link<UseRecord> link; // of the free pool or capture that has it
    Link<UseRecord> all;
};

struct StreamPool : FreePool {
    using FreePool::FreePool;

    // --- for every caller, with the pool's lock ---
    void count_allocation() { balance_++; }
    void count_frees(int64_t count) { balance_ -= count; }
    uint32_t count_slow_call() { return ++slow_calls_; }
    // It stays while a call that lets go of the lock refers to it.
    void hold() { references_++; }
    void unhold() { references_--; }
    // It stays while threads have magazines for it.
    void enter_magazine() { magazines_++; }
    void leave_magazine() { magazines_--; }
    uint32_t magazines() const { return magazines_; }
    uint64_t key() const { return key_; } // identity of the stream, never used again

    List<Block, &Block::pending> pinned; // host memory freed here

private:
    friend class Captures;
    friend class CrossContext;
    friend class StreamOrder;
    friend class Streams;

    // All memory has gone elsewhere, by no doing of the free pool's.
    void forget_memory(uint64_t now);
    bool reachable() const { return registered && capturing_.load(std::memory_order_relaxed) == 0; }
    bool is_idle() const;

    uint64_t key_ = 0;
    CUstream handle_ = nullptr; // to be touched only while `registered`
    bool nonblocking_ = false;  // no other stream's work is implied in its own
    bool stale_ = false;        // returned to the store
    Capture *capture_ = nullptr;
    std::atomic<uint32_t> capturing_{0}; // announced captures of this stream
    CUstream announced_ = nullptr;       // its handle in those announcements, never touched
    uint32_t pins_ = 0;                  // threads in a driver call with `handle_`
    uint32_t references_ = 0;            // callers and use records that point here
    uint32_t magazines_ = 0;             // that threads have for this stream

    List<UseRecord, &UseRecord::link> uses_;
    List<RecordedEvent, &RecordedEvent::link> events_;
    Link<StreamPool> incomplete_; // of the free pools with something that is not complete
    Link<StreamPool> askable_;    // of those about which the driver can be asked

    int64_t balance_ = 0;     // allocations less frees here
    uint64_t open_bytes_ = 0; // freed since the last event
    uint32_t open_frees_ = 0;
    uint32_t events_made_ = 0;
    uint32_t slow_calls_ = 0;
    uint64_t answered_ = 0; // the last call for an event that this stream has answered
};

// The stream pool of a block of device memory that is free or has just been taken.
inline StreamPool &owner_of(const Block &block) {
    return static_cast<StreamPool &>(*block.pool);
}

} // namespace emm::pool

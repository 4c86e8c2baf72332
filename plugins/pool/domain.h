// A domain is a free pool with what decides when its memory is complete: a stream and its events,
// the context, or a capture.
#pragma once

#include "bin.h"
#include "heap/free_pool.h"

#include <atomic>
#include <cuda.h>
#include <vector>

namespace emm::pool {

struct Domain;

// An event that was recorded after every free with a tag up to `tag`.
struct Watch {
    CUevent event = nullptr;
    uint64_t tag = 0;
    Link<Watch> link;
};

// One more stream, or capture, that a block is used on.
struct Use {
    Domain *domain;   // NULL: nobody can record an event on that stream, so all work counts
    Capture *capture; // NULL: none
};

// What record_use said about one allocation, and how often it is exported.
struct UseRecord {
    Block *block = nullptr;
    Slot *slot = nullptr;
    Domain *home = nullptr; // where it was freed
    uint32_t exports = 0;   // while there are any, it goes nowhere
    bool all_work = false;  // nothing less than the context's event will do
    uint64_t tag = 0;
    std::vector<Use> uses;
    Link<UseRecord> link; // of the domain or capture that has it
    Link<UseRecord> all;
};

struct Domain : FreePool {
    using FreePool::FreePool;

    uint64_t key = 0;          // identity of the stream, never used again
    CUstream handle = nullptr; // to be touched only while `registered`
    bool nonblocking = false;  // no other stream's work is implied in its own
    bool stale = false;        // returned to the store
    Capture *capture = nullptr;
    std::atomic<uint32_t> capturing{0}; // announced captures of this stream
    CUstream announced = nullptr;       // its handle in those announcements, never touched
    uint32_t pins = 0;                  // threads in a driver call with `handle`
    uint32_t references = 0;            // callers and use records that point here
    uint32_t magazines = 0;             // that threads have for this stream

    List<Block, &Block::pending> host; // pinned memory freed here
    List<UseRecord, &UseRecord::link> uses;

    SlotShelf shelf; // for the domain's magazines, while there are any

    List<Watch, &Watch::link> watches;
    Link<Domain> open;    // of the domains with something that is not complete
    Link<Domain> askable; // of those about which the driver can be asked

    int64_t balance = 0;     // allocations less frees here
    uint64_t open_bytes = 0; // freed since the last event
    uint32_t open_frees = 0;
    uint32_t seals = 0;
    uint32_t calls = 0;    // the long way
    uint64_t answered = 0; // the last call for an event that this stream has answered

    // All memory has gone elsewhere, by no doing of the domain's.
    void forget_memory(uint64_t now) {
        FreePool::forget_memory(now);
        host = {};
        uses = {};
        open_bytes = open_frees = 0;
        balance = 0;
        references = 0;
    }

    bool reachable() const { return registered && capturing.load(std::memory_order_relaxed) == 0; }
};

// Of a free block of device memory, or one that has just been taken.
inline Domain &owner_of(const Block &block) {
    return static_cast<Domain &>(*block.domain);
}

} // namespace emm::pool

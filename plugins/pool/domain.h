// A domain says what freed memory still has to wait for: the work of one stream, all work of the
// context, a graph's life, or nothing. Every free block and every freed slot belongs to one.
#pragma once

#include "bin.h"
#include "block.h"
#include "slab.h"

#include <atomic>
#include <cuda.h>

namespace emm::pool {

enum class Order : uint8_t {
    anyone,    // nothing: all work that used it is complete
    unordered, // all work that the context held when it was freed
    stream,    // that stream's work; the stream itself may have it at once
    capture    // a stream inside a capture: for this capture's use alone until its graph is gone
};

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

struct Domain {
    Order order = Order::stream;
    uint64_t key = 0;          // identity of the stream, never used again
    CUstream handle = nullptr; // to be touched only while `registered`
    bool registered = false;   // lives until announced otherwise
    bool nonblocking = false;  // no other stream's work is implied in its own
    bool stale = false;        // returned to the store
    Capture *capture = nullptr;
    std::atomic<uint32_t> capturing{0}; // announced captures of this stream
    CUstream announced = nullptr;       // its handle in those announcements, never touched
    uint32_t pins = 0;                  // threads in a driver call with `handle`
    uint32_t references = 0;            // callers and use records that point here
    uint32_t magazines = 0;             // that threads have for this stream

    SizeTree own[zones];
    List<Block, &Block::pending> pending;
    List<Block, &Block::pending> host; // pinned memory freed here
    SlotQueue freed[slab_classes];     // slots of others' slabs, freed here
    List<Slab, &Slab::ready> ready[slab_classes];
    List<Slab, &Slab::owned> slabs;
    List<UseRecord, &UseRecord::link> uses;

    SlotShelf shelf; // for the domain's magazines, while there are any

    List<Watch, &Watch::link> watches;
    uint64_t newest = 0;    // tag of the newest free
    uint64_t sealed = 0;    // newest tag with an event after it
    uint64_t completed = 0; // newest tag whose work is known to be done
    Link<Domain> open;      // of the domains with something that is not complete
    Link<Domain> askable;   // of those about which the driver can be asked

    int64_t balance = 0;     // allocations less frees here
    uint64_t open_bytes = 0; // freed since the last event
    uint32_t open_frees = 0;
    uint32_t seals = 0;
    uint32_t calls = 0;    // the long way
    uint64_t answered = 0; // the last call for an event that this stream has answered

    // All memory has gone elsewhere, by no doing of the domain's.
    void forget_memory(uint64_t clock) {
        for (SizeTree &tree : own) {
            tree = {};
        }
        pending = host = {};
        uses = {};
        for (unsigned i = 0; i < slab_classes; i++) {
            freed[i].clear();
            ready[i] = {};
        }
        newest = sealed = completed = clock - 1;
        open_bytes = open_frees = 0;
        balance = 0;
        references = 0;
    }

    bool reachable() const { return registered && capturing.load(std::memory_order_relaxed) == 0; }
};

} // namespace emm::pool

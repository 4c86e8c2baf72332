// Free memory that waits for the same thing: the work of one stream, all work of the context, a
// graph's life, or nothing. Every free block and every freed slot belongs to one such pool.
#pragma once

#include "block.h"
#include "slab.h"

namespace emm::pool {

enum class Order : uint8_t {
    anyone,    // nothing: all work that used it is complete
    unordered, // all work that the context held when it was freed
    stream,    // that stream's work; the stream itself may have it at once
    capture    // a stream inside a capture: only for this capture until its graph is gone
};

struct FreePool {
    explicit FreePool(Order of = Order::stream) : order(of) {}

    Order order;
    bool registered = false; // its stream lives until announced otherwise
    uint64_t newest = 0;     // tag of the newest free
    uint64_t recorded = 0;   // newest tag with an event after it
    uint64_t completed = 0;  // newest tag whose work is known to be done

    SizeTree own[zones];
    List<Block, &Block::pending> pending;
    SlotQueue freed[slab_classes]; // slots of other pools' slabs, freed here
    List<Slab, &Slab::ready> ready[slab_classes];
    List<Slab, &Slab::owned> slabs;

    // Has neither slabs nor anything incomplete.
    bool holds_nothing() const {
        for (const SlotQueue &queue : freed) {
            if (queue.first) {
                return false;
            }
        }
        return slabs.empty() && pending.empty();
    }

    // All memory has gone elsewhere, without the pool's help.
    void forget_memory(uint64_t now) {
        for (SizeTree &tree : own) {
            tree = {};
        }
        pending = {};
        for (unsigned i = 0; i < slab_classes; i++) {
            freed[i].clear();
            ready[i] = {};
        }
        newest = recorded = completed = now - 1;
    }
};

} // namespace emm::pool

// Memory that other processes have open. An allocation that is freed while it is exported waits
// with its use record until the last export ends. So no trim and no other allocation gets the
// memory, and its backing stays.
#pragma once

#include "backing/backing.h"

#include <list>

namespace emm::pool {

class Exports {
public:
    Exports(const Options &options, StreamOrder &order, const Heap &heap, Backing &backing)
        : options_(options), order_(order), heap_(heap), backing_(backing) {}

    // --- no lock is held ---
    emm_status begin(emm_deviceptr ptr, size_t size, emm_ipc_handle &ret_handle);
    emm_status end(const emm_ipc_handle &handle);

    // The ranges of exports that have not ended; the pool's lock is held.
    std::vector<Range> ranges() const;
    bool any() const { return !exports_.empty(); }
    void forget_all() { exports_.clear(); } // with the use records; the pool's lock is held

private:
    struct Export {
        UseRecord *record;
        emm_ipc_handle handle; // as the host got it, with the bytes that identify it
        Range range;
    };

    bool is_hidden(BlockOrSlot allocation) const;
    emm_status refuse(emm_deviceptr ptr, size_t size, BlockOrSlot allocation) const;

    const Options &options_;
    StreamOrder &order_;
    const Heap &heap_;
    Backing &backing_;
    std::list<Export> exports_;
};

} // namespace emm::pool

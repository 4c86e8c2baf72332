// The consequences of completed work, and further conditions that freed memory waits for.
#include "registry.h"
#include "stream_order.h"

namespace emm::pool {

StreamOrder::StreamOrder(ServedContext &context, FreedMemory &memory)
    : context_(context), memory_(memory), captures_(context, streams_, *this, memory) {}

StreamOrder::~StreamOrder() {
    const Current current = context_.make_current();
    const bool lives = context_.lives(); // the driver may fail to make it current, and have them
    while (RecordedEvent *event = spare_events_.pop_front()) {
        if (event->event && lives) {
            events_.destroy(event->event);
        }
        delete event;
    }
}

void StreamOrder::enter_registry() {
    registry::enter(*this, context_.handle, context_.id, number_);
}

void StreamOrder::leave_registry() {
    registry::leave(number_);
}

void StreamOrder::forget_memory() {
    each_pool([this](StreamPool &pool) {
        while (RecordedEvent *event = pool.events_.pop_front()) {
            spare_events_.push_back(*event);
        }
        pool.forget_memory(now());
        relink(pool);
    });
    streams_.forget_unregistered();
    while (UseRecord *record = uses_.pop_front()) {
        delete record;
    }
    captures_.forget_all(now());
}

void StreamOrder::mark_dirty(StreamPool &pool, uint64_t bytes, uint32_t frees) {
    pool.newest = now();
    pool.open_bytes_ += bytes;
    pool.open_frees_ += frees;
    relink(pool);
}

// Moves the pool to the lists where it belongs now.
void StreamOrder::relink(StreamPool &pool) {
    if (pool.order != Order::stream) {
        return;
    }
    const bool incomplete = pool.newest > pool.completed;
    const bool askable = !pool.events_.empty() || (pool.registered && pool.newest > pool.recorded);
    if (incomplete != pool.incomplete_.linked) {
        incomplete ? incomplete_.push_back(pool) : incomplete_.remove(pool);
    }
    if (askable != pool.askable_.linked) {
        askable ? askable_.push_back(pool) : askable_.remove(pool);
    }
}

void StreamOrder::complete(StreamPool &pool, uint64_t tag) {
    pool.references_++;
    pool.completed = tag > pool.completed ? tag : pool.completed;
    memory_.complete(pool, tag);
    while (UseRecord *record = pool.uses_.first()) {
        if (record->tag > tag) {
            break;
        }
        pool.uses_.remove(*record);
        advance(*record);
    }
    if (pool.order == Order::stream && !pool.registered) {
        memory_.disband(pool);
    }
    pool.references_--;
    relink(pool);
}

void StreamOrder::complete_all(uint64_t tag) {
    waited_in_vain_ = 0; // work goes on
    StreamPool *next = nullptr;
    for (StreamPool *pool = incomplete_.first(); pool; pool = next) {
        next = incomplete_.next(*pool);
        complete(*pool, tag);
        forget_if_idle(*pool);
    }
    complete(unordered_, tag);
}

// --- allocations and frees -----------------------------------------------------------------------

// Memory allocated in a capture belongs to its graph.
void StreamOrder::adopt(BlockOrSlot allocation, StreamPool &pool) {
    pool.balance_++;
    if (allocation.block && pool.capture_) {
        allocation.block->capture = pool.capture_;
        allocation.mark_special();
        pool.capture_->references++;
    }
}

StreamPool *StreamOrder::free(BlockOrSlot allocation, StreamPool &pool) {
    if (allocation.capture()) {
        captures_.collect(); // if its graph has gone, the memory waits for the stream alone
    }
    Capture *capture = allocation.capture();
    if (capture && capture->gone) {
        allocation.block->capture = nullptr;
        captures_.drop_reference(*capture);
        capture = nullptr;
    }
    if (allocation.uses()) {
        return free_with_uses(allocation, pool, capture);
    }
    if (capture && capture == pool.capture_) {
        capture->references--;
        allocation.block->capture = nullptr;
        memory_.give(allocation, pool); // reusable inside the capture
    } else if (pool.capture_ || capture) {
        captures_.hold(allocation, pool.capture_ ? *pool.capture_ : *capture);
    } else {
        memory_.give(allocation, pool);
    }
    return nullptr;
}

// The use record leads the memory through everything it must wait for. Returns a stream that should
// get an event now, or NULL.
StreamPool *StreamOrder::free_with_uses(BlockOrSlot allocation, StreamPool &pool,
                                        Capture *capture) {
    UseRecord &record = *allocation.uses();
    allocation.uses() = nullptr;
    memory_.hold(allocation);
    if (capture) { // its reference goes from the block to the record
        allocation.block->capture = nullptr;
        record.uses.push_back({nullptr, capture});
    }
    if (pool.capture_) {
        pool.capture_->references++;
        record.uses.push_back({nullptr, pool.capture_});
    }
    record.home = pool.capture_ ? &unordered_ : &pool;
    record.home->references_++;
    return advance(record);
}

// --- further uses --------------------------------------------------------------------------------

void StreamOrder::record_use(Lock &lock, BlockOrSlot allocation, const Caller &caller,
                             StreamPool *pool) {
    add_use(allocation, caller.capturing ? Use{nullptr, pool->capture_} : Use{pool, nullptr});
    // An unregistered stream gets its event now, for its frees since the last one.
    if (caller.kind == StreamKind::unregistered && !caller.capturing) {
        record_event(lock, *pool, caller.stream);
    }
}

UseRecord &StreamOrder::record_of(BlockOrSlot allocation) {
    UseRecord *&record = allocation.uses();
    if (!record) {
        auto fresh = std::make_unique<UseRecord>();
        fresh->uses.reserve(4);
        fresh->allocation = allocation;
        record = fresh.release();
        uses_.push_back(*record);
    }
    allocation.mark_special();
    return *record;
}

void StreamOrder::add_use(BlockOrSlot allocation, Use use) {
    UseRecord &record = record_of(allocation);
    for (const Use &known : record.uses) {
        if (known.pool == use.pool && known.capture == use.capture) {
            return;
        }
    }
    record.uses.reserve(record.uses.size() + 3); // the free may add two and must not fail
    record.uses.push_back(use);
    if (use.pool) {
        use.pool->references_++;
    }
    if (use.capture) {
        use.capture->references++;
    }
}

UseRecord &StreamOrder::begin_export(BlockOrSlot allocation) {
    UseRecord &record = record_of(allocation);
    record.exports++;
    return record;
}

// A live allocation does not need an empty record. If the allocation was freed meanwhile, its wait
// continues here.
void StreamOrder::end_export(Lock &lock, UseRecord &record) {
    if (--record.exports > 0) {
        return;
    }
    if (record.home) {
        if (StreamPool *used = advance(record)) {
            record_event_if_reachable(lock, *used);
        }
    } else if (record.uses.empty()) {
        const BlockOrSlot allocation = record.allocation;
        allocation.uses() = nullptr;
        if (!allocation.capture()) {
            allocation.end_special();
        }
        uses_.remove(record);
        delete &record;
    }
}

// Takes freed memory with uses to the next thing that it waits for, and in the end to its home.
StreamPool *StreamOrder::advance(UseRecord &record) {
    if (record.exports > 0) {
        return nullptr;
    }
    while (!record.uses.empty()) {
        const Use use = record.uses.back();
        record.uses.pop_back();
        if (use.capture) {
            record.all_work = true;
            if (!use.capture->gone) {
                use.capture->uses.push_back(record);
                use.capture->references--;
                return nullptr;
            }
            captures_.drop_reference(*use.capture);
        } else if (!use.pool) {
            record.all_work = true;
        } else {
            use.pool->references_--;
            const bool own = use.pool == record.home;
            if (!own && !record.all_work) {
                mark_dirty(*use.pool, 0);
                record.tag = use.pool->newest;
                use.pool->uses_.push_back(record);
                return use.pool;
            }
            forget_if_idle(*use.pool);
        }
    }
    finish(record);
    return nullptr;
}

void StreamOrder::finish(UseRecord &record) {
    StreamPool &home = *record.home;
    home.references_--;
    const bool anywhere = record.all_work && &home != &cross_context_;
    memory_.give_held(record.allocation, anywhere ? unordered_ : home);
    uses_.remove(record);
    delete &record;
}

} // namespace emm::pool

// What follows from completed work, and what freed memory waits for besides its stream.
#include "registry.h"
#include "stream_order.h"

namespace emm::pool {

StreamOrder::StreamOrder(ServedContext &context, Mutex &mutex, TagClock &clock, FreedMemory &memory)
    : context_(context), mutex_(mutex), clock_(clock), memory_(memory),
      captures_(context, mutex, streams_, *this, memory) {}

StreamOrder::~StreamOrder() {
    const Current current = context_.make_current();
    while (RecordedEvent *event = spare_events_.pop_front()) {
        if (event->event && current.result() == CUDA_SUCCESS) {
            events_.destroy(event->event);
        }
        delete event;
    }
}

void StreamOrder::enter_registry() {
    number_ = registry::enter(*this);
}

void StreamOrder::leave_registry() {
    registry::leave(number_);
}

void StreamOrder::forget_memory() {
    each_domain([this](Domain &domain) {
        while (RecordedEvent *event = domain.events_.pop_front()) {
            spare_events_.push_back(*event);
        }
        domain.forget_memory(now());
        relink(domain);
    });
    streams_.forget_unregistered();
    while (UseRecord *record = uses_.pop_front()) {
        delete record;
    }
    captures_.forget_all(now());
}

void StreamOrder::mark_dirty(Domain &domain, uint64_t bytes, uint32_t frees) {
    domain.newest = now();
    domain.open_bytes_ += bytes;
    domain.open_frees_ += frees;
    relink(domain);
}

// Into the lists that it belongs to now, and out of the others.
void StreamOrder::relink(Domain &domain) {
    if (domain.order != Order::stream) {
        return;
    }
    const bool incomplete = domain.newest > domain.completed;
    const bool askable =
        !domain.events_.empty() || (domain.registered && domain.newest > domain.recorded);
    if (incomplete != domain.incomplete_.linked) {
        incomplete ? incomplete_.push_back(domain) : incomplete_.remove(domain);
    }
    if (askable != domain.askable_.linked) {
        askable ? askable_.push_back(domain) : askable_.remove(domain);
    }
}

void StreamOrder::complete(Domain &domain, uint64_t tag) {
    domain.references_++;
    domain.completed = tag > domain.completed ? tag : domain.completed;
    memory_.complete(domain, tag);
    while (UseRecord *record = domain.uses_.first()) {
        if (record->tag > tag) {
            break;
        }
        domain.uses_.remove(*record);
        advance(*record);
    }
    if (domain.order == Order::stream && !domain.registered) {
        memory_.disband(domain);
    }
    domain.references_--;
    relink(domain);
}

void StreamOrder::complete_all(uint64_t tag) {
    Domain *next = nullptr;
    for (Domain *domain = incomplete_.first(); domain; domain = next) {
        next = incomplete_.next(*domain);
        complete(*domain, tag);
        forget_if_idle(*domain);
    }
    complete(unordered_, tag);
}

// --- allocations and frees -----------------------------------------------------------------------

// What a capture allocates is its graph's.
void StreamOrder::adopt(Place place, Domain &domain) {
    domain.balance_++;
    if (place.block && domain.capture_) {
        place.block->capture = domain.capture_;
        place.mark_special();
        domain.capture_->references++;
    }
}

Domain *StreamOrder::free(Place place, Domain &domain) {
    Capture *capture = place.capture();
    if (capture && capture->gone) {
        place.block->capture = nullptr;
        captures_.drop_reference(*capture);
        capture = nullptr;
    }
    if (place.uses()) {
        return free_with_uses(place, domain, capture);
    }
    if (capture && capture == domain.capture_) {
        capture->references--;
        place.block->capture = nullptr;
        memory_.give(place, domain); // reusable inside the capture
    } else if (domain.capture_ || capture) {
        captures_.hold(place, domain.capture_ ? *domain.capture_ : *capture);
    } else {
        memory_.give(place, domain);
    }
    return nullptr;
}

// The use record sees the memory through all it has to wait for. Returns a stream that should get
// an event now, or NULL.
Domain *StreamOrder::free_with_uses(Place place, Domain &domain, Capture *capture) {
    UseRecord &record = *place.uses();
    place.uses() = nullptr;
    memory_.hold(place);
    if (capture) { // its reference goes from the block to the record
        place.block->capture = nullptr;
        record.uses.push_back({nullptr, capture});
    }
    if (domain.capture_) {
        domain.capture_->references++;
        record.uses.push_back({nullptr, domain.capture_});
    }
    record.home = domain.capture_ ? &unordered_ : &domain;
    record.home->references_++;
    return advance(record);
}

// --- further uses --------------------------------------------------------------------------------

void StreamOrder::record_use(Lock &lock, Place place, const Caller &caller, Domain *domain) {
    add_use(place, caller.capturing ? Use{nullptr, domain->capture_} : Use{domain, nullptr});
    // A stream that is not registered has its event now, for what was freed since its last one.
    if (caller.kind == StreamKind::unregistered && !caller.capturing) {
        record_event(lock, *domain, caller.stream);
    }
}

UseRecord &StreamOrder::record_of(Place place) {
    UseRecord *&record = place.uses();
    if (!record) {
        auto fresh = std::make_unique<UseRecord>();
        fresh->uses.reserve(4);
        fresh->place = place;
        record = fresh.release();
        uses_.push_back(*record);
    }
    place.mark_special();
    return *record;
}

void StreamOrder::add_use(Place place, Use use) {
    UseRecord &record = record_of(place);
    for (const Use &known : record.uses) {
        if (known.domain == use.domain && known.capture == use.capture) {
            return;
        }
    }
    record.uses.reserve(record.uses.size() + 3); // the free may add two and must not fail
    record.uses.push_back(use);
    if (use.domain) {
        use.domain->references_++;
    }
    if (use.capture) {
        use.capture->references++;
    }
}

UseRecord &StreamOrder::begin_export(Place place) {
    UseRecord &record = record_of(place);
    record.exports++;
    return record;
}

// An allocation that lives on has no use for an empty record; one that was freed meanwhile goes on
// from here.
void StreamOrder::end_export(Lock &lock, UseRecord &record) {
    if (--record.exports > 0) {
        return;
    }
    if (record.home) {
        if (Domain *used = advance(record)) {
            record_event_if_reachable(lock, *used);
        }
    } else if (record.uses.empty()) {
        const Place place = record.place;
        place.uses() = nullptr;
        if (!place.capture()) {
            place.end_special();
        }
        uses_.remove(record);
        delete &record;
    }
}

// Takes freed memory with uses to the next thing that it waits for, at the end to its home.
Domain *StreamOrder::advance(UseRecord &record) {
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
        } else if (!use.domain) {
            record.all_work = true;
        } else {
            use.domain->references_--;
            const bool own = use.domain == record.home;
            if (!own && !record.all_work) {
                mark_dirty(*use.domain, 0);
                record.tag = use.domain->newest;
                use.domain->uses_.push_back(record);
                return use.domain;
            }
            forget_if_idle(*use.domain);
        }
    }
    finish(record);
    return nullptr;
}

void StreamOrder::finish(UseRecord &record) {
    Domain &home = *record.home;
    home.references_--;
    const bool anywhere = record.all_work && &home != &cross_context_;
    memory_.give_held(record.place, anywhere ? unordered_ : home);
    uses_.remove(record);
    delete &record;
}

} // namespace emm::pool

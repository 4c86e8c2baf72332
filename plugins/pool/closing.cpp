// Magazines shut for a while, and closed for good. The lock is held throughout, but for what a
// thread that ends comes with.
#include "manager.h"

namespace emm::pool {

// The owners of magazines of this domain, or of all if it is NULL, are kept out of them; it must
// not have been away from the lock in between that they are let in again.
void Manager::shut_magazines(const Domain *domain) {
    const Thread *self = Thread::self_if_any();
    const auto concerns = [=](const Magazine &magazine) {
        return &magazine.owner != self && (!domain || &magazine.domain == domain);
    };
    bool plain = false;
    for (Magazine *m = magazines_.first(); m; m = magazines_.next(*m)) {
        plain = (concerns(*m) && m->gate.shut()) || plain;
    }
    if (const int error = plain ? Gate::see_everywhere() : 0) {
        char text[160];
        snprintf(text, sizeof text,
                 "pool: the kernel refuses membarrier since a moment ago (error %d: a sandbox?); "
                 "every call pays for its own barrier from now on",
                 error);
        host_.log(EMM_LOG_WARN, text);
    }
    for (Magazine *m = magazines_.first(); m; m = magazines_.next(*m)) {
        if (concerns(*m)) {
            m->gate.await_owner();
        }
    }
}

void Manager::reopen_magazines() {
    for (Magazine *m = magazines_.first(); m; m = magazines_.next(*m)) {
        m->gate.reopen();
    }
}

// Nobody who looked an address up before the last change to the map is still looking afterwards.
void Manager::await_lookups() {
    shut_magazines(nullptr);
    reopen_magazines();
}

// Empties the magazines of this domain, or of all if it is NULL, for good. Their owners' next call
// finds out, and may make another.
void Manager::close_all_magazines(const Domain *domain) {
    shut_magazines(domain);
    Magazine *next = nullptr;
    for (Magazine *m = magazines_.first(); m; m = next) {
        next = magazines_.next(*m);
        if (!domain || &m->domain == domain) {
            drain(*m);
            close(*m);
        }
    }
}

void Manager::close(Magazine &magazine) {
    Domain &domain = magazine.domain;
    SlotShelf &shelf = magazine.shelf;
    magazines_.remove(magazine);
    domain.leave_magazine();
    magazine.gate.lock_for_good(); // from here on it is its owner's alone
    if (domain.magazines() == 0) {
        clear_shelf(shelf, domain);
        shelves_.erase(&domain);
    }
    order_.forget_if_idle(domain);
}

// The thread that owns it ends.
void Manager::part_with(Magazine &magazine) {
    const Lock lock(mutex_);
    if (!magazine.gate.locked_for_good()) {
        drain(magazine);
        close(magazine);
    }
}

} // namespace emm::pool

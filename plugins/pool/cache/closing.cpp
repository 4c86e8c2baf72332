// Magazines closed for a while, and permanently.
#include "thread_caches.h"

namespace emm::pool {

// Closes the magazines of this free pool, or of all if it is NULL.
void ThreadCaches::shut(const StreamPool *pool) {
    const auto concerns = [=](const Magazine &magazine) {
        return !magazine.is_own() && (!pool || &magazine.pool == pool);
    };
    bool plain = false;
    each([&](Magazine &m) { plain = (concerns(m) && m.lock.close()) || plain; });
    if (const int error = plain ? BiasedLock::fence_owners() : 0) {
        refused_fence_.store(error, std::memory_order_relaxed);
    }
    each([&](const Magazine &m) {
        if (concerns(m)) {
            m.lock.await_owner();
        }
    });
}

// Only the first call that ends after the refusal warns.
void ThreadCaches::warn_of_refused_fence() {
    if (refused_fence_.load(std::memory_order_relaxed) == 0) {
        return;
    }
    if (const int error = refused_fence_.exchange(0, std::memory_order_relaxed)) {
        char text[160];
        snprintf(text, sizeof text,
                 "pool: the kernel now refuses membarrier (error %d: a sandbox?); each call uses "
                 "its own barrier from now on",
                 error);
        order_.context().host.log(EMM_LOG_WARN, text);
    }
}

bool ThreadCaches::enter(Magazine &magazine) {
    if (magazine.lock.enter()) {
        return true;
    }
    if (magazine.lock.closed_for_good()) {
        return false;
    }
    {
        const Lock lock(order_.context().mutex);
        unpark(magazine);
    }
    return magazine.lock.enter();
}

// A drained magazine that will hold slots again returns to the list that is walked.
void ThreadCaches::unpark(Magazine &magazine) {
    magazine.drained_ = false;
    if (!magazine.active_.linked && !magazine.lock.closed_for_good()) {
        active_.push_back(magazine);
        magazine.lock.reopen();
    }
}

void ThreadCaches::reopen() {
    each([](Magazine &m) { m.lock.reopen(); });
}

void ThreadCaches::await_lookups() {
    shut();
    reopen();
}

void ThreadCaches::close(const StreamPool *pool) {
    shut(pool);
    Magazine *next = nullptr;
    for (Magazine *m = magazines_.first(); m; m = next) {
        next = magazines_.next(*m);
        if (!pool || &m->pool == pool) {
            drain(*m);
            close(*m);
        }
    }
}

void ThreadCaches::close(Magazine &magazine) {
    StreamPool &pool = magazine.pool;
    Depot &depot = magazine.depot_;
    magazines_.remove(magazine);
    if (magazine.active_.linked) {
        active_.remove(magazine);
    }
    pool.leave_magazine();
    magazine.lock.close_for_good(); // from here on only its owner uses the magazine
    clear(depot, pool);             // those that stay may be parked
    if (pool.magazines() == 0) {
        depots_.erase(&pool);
        if (pool.order == Order::anyone) {
            block_depot_.give_complete();
        }
    }
    order_.forget_if_idle(pool);
}

void ThreadCaches::retire_magazine(Magazine &magazine) {
    const Lock lock(order_.context().mutex);
    if (!magazine.lock.closed_for_good()) {
        drain(magazine);
        close(magazine);
    }
}

} // namespace emm::pool

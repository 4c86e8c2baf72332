#include "thread_caches.h"

namespace emm::pool {

ThreadCaches::ThreadCaches(StreamOrder &order, DeviceMemory &memory, PinnedOwner &pinned,
                           uint64_t identity, const std::atomic<uint64_t> &serving, uint64_t limit)
    : order_(order), memory_(memory), pinned_(pinned), identity_(identity), serving_(serving),
      limit_(limit), block_depot_(memory.heap, kept_bytes_limit(limit)) {
    BiasedLock::prepare();
}

void ThreadCaches::set_limit(uint64_t limit) {
    if (limit != limit_) {
        close(nullptr);
        limit_ = limit;
        block_depot_.set_most(kept_bytes_limit(limit));
    }
}

Magazine *ThreadCaches::own(uint64_t identity, emm_stream stream, StreamPool &pool) {
    try {
        Thread *thread = Thread::self();
        if (!thread) {
            return nullptr;
        }
        Magazine *magazine = thread->find(pool, identity_);
        magazine = magazine ? magazine : &make(*thread, pool);
        unpark(*magazine);
        thread->set_way(identity, stream, *magazine);
        return magazine;
    } catch (const std::bad_alloc &) {
        return nullptr;
    }
}

Magazine &ThreadCaches::make(Thread &thread, StreamPool &pool) {
    BlockLimits limits;
    if (limit_ > 0 && pool.order == Order::stream) {
        limits.recent = largest_block_of_any_size;
        limits.repeated = kept_block_limit(limit_);
    } else if (pool.order == Order::anyone) {
        limits.unordered = kept_block_limit(limit_);
        limits.most_freed = bytes_a_batch(limit_);
    }
    const auto [depot, fresh] = depots_.try_emplace(&pool, totals_);
    try {
        Magazine &magazine = thread.make_magazine(*this, identity_, pool, depot->second, limits);
        magazines_.push_back(magazine);
        active_.push_back(magazine);
        pool.enter_magazine();
        return magazine;
    } catch (...) {
        if (fresh) {
            depots_.erase(depot);
        }
        throw;
    }
}

// A registration, or a call for events, sends the stream's next call down the slow path.
Magazine *ThreadCaches::find_unregistered(emm_stream stream) const {
    const uint64_t identity = serving_.load(std::memory_order_relaxed) | unregistered_bit;
    Magazine *magazine = Thread::magazine_for(identity, stream);
    if (!magazine || magazine->registrations_ != order_.registrations() ||
        magazine->answered_ != order_.calls_for_events()) {
        return nullptr;
    }
    return order_.is_same_and_not_capturing(stream, magazine->key_) ? magazine : nullptr;
}

Magazine *ThreadCaches::own_for(const Caller &caller, StreamPool &pool) {
    if (caller.kind != StreamKind::unregistered || caller.capturing ||
        pool.count_slow_call() < calls_before_a_magazine) {
        return nullptr;
    }
    Thread *thread = Thread::self_if_any();
    if (!thread || !thread->find(pool, identity_)) {
        make_room_for_unregistered();
    }
    Magazine *magazine = own(identity_ | unregistered_bit, caller.stream, pool);
    if (magazine) {
        magazine->registrations_ = order_.registrations();
        magazine->answered_ = order_.answered(pool);
    }
    return magazine;
}

// An unregistered stream ends unannounced, so a thread has only a few magazines for such streams.
void ThreadCaches::make_room_for_unregistered() {
    size_t count = 0;
    Magazine *oldest = nullptr;
    for (Magazine *m = magazines_.first(); m; m = magazines_.next(*m)) {
        const bool unregistered = m->pool.order == Order::stream && !m->pool.registered;
        if (m->is_own() && unregistered) {
            oldest = oldest ? oldest : m;
            count++;
        }
    }
    if (count >= most_unregistered_magazines) {
        drain(*oldest);
        close(*oldest);
    }
}

// --- the content of all of them ------------------------------------------------------------------

uint64_t ThreadCaches::idle_bytes() const {
    uint64_t bytes = totals_.bytes;
    each([&](const Magazine &m) { bytes += m.idle_bytes(); });
    return bytes;
}

uint64_t ThreadCaches::quarantined_bytes() const {
    uint64_t bytes = quarantined_;
    each([&](const Magazine &m) { bytes += m.quarantined_bytes(); });
    return bytes;
}

uint64_t ThreadCaches::largest_kept_block() const {
    uint64_t size = block_depot_.largest_complete();
    each([&](const Magazine &m) { size = std::max(size, m.largest_kept_block()); });
    return size;
}

// Below 0 for a moment if a block was allocated by one thread and freed by another.
uint64_t ThreadCaches::live_bytes() const {
    return uint64_t(std::max<int64_t>(memory_.counts.live(), 0));
}

// The number of allocations and frees. Other threads may go on meanwhile.
uint64_t ThreadCaches::calls_served() const {
    uint64_t calls = memory_.counts.allocations() + memory_.counts.frees();
    each([&](const Magazine &m) { calls += m.allocations_.get() + m.frees_.get(); });
    return calls;
}

// Each magazine counts for itself, and this reads the counts while owners change them.
void ThreadCaches::report(emm_stats &stats) const {
    const Counts &counts = memory_.counts;
    int64_t live = counts.live(), count = counts.live_count();
    stats.allocations = counts.allocations();
    stats.frees = counts.frees();
    each([&](const Magazine &m) {
        const uint64_t allocations = m.allocations_.get(), frees = m.frees_.get();
        stats.allocations += allocations;
        stats.frees += frees;
        count += int64_t(allocations - frees);
        live += m.live_.get();
    });
    stats.live_bytes = uint64_t(std::max<int64_t>(live, 0));
    stats.live_count = uint64_t(std::max<int64_t>(count, 0));
    stats.peak_live_bytes = uint64_t(std::max(counts.peak_live(), live));
}

// Each magazine has a highest value of its own, which no other thread may write while it is open.
void ThreadCaches::reset_peak() {
    shut();
    each([this](Magazine &m) { add_counts(m); });
    memory_.counts.reset_peak();
    reopen();
}

} // namespace emm::pool

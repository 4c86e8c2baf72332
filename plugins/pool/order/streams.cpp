#include "streams.h"

#include "caller.h"

namespace emm::pool {

uint64_t thread_key() {
    static std::atomic<uint64_t> next{first_thread_key};
    thread_local uint64_t key = 0; // none yet: a guard of the compiler's would be as large again
    key = key != 0 ? key : next.fetch_add(1, std::memory_order_relaxed);
    return key;
}

Streams::Streams() {
    legacy.registered = true;
}

StreamPool *Streams::find_registered(CUstream stream) const {
    const auto found = registered_.find(stream);
    return found == registered_.end() ? nullptr : found->second;
}

StreamPool *Streams::find(uint64_t key) const {
    const auto found = by_key_.find(key);
    return found == by_key_.end() ? nullptr : found->second;
}

StreamPool *Streams::find_announced(CUstream stream) const {
    for (const auto &[key, pool] : by_key_) {
        if (pool->capturing_ > 0 && pool->announced_ == stream) {
            return pool;
        }
    }
    return nullptr;
}

StreamPool &Streams::find_or_make(uint64_t key) {
    const auto [entry, fresh] = by_key_.try_emplace(key, nullptr);
    if (fresh) {
        try {
            entry->second = make();
        } catch (...) {
            by_key_.erase(entry);
            throw;
        }
        entry->second->key_ = key;
        made_since_asked_++;
    }
    return *entry->second;
}

StreamPool *Streams::make() {
    if (unused_.empty()) {
        if (unused_.capacity() <= made_.size()) {
            unused_.reserve(2 * made_.size() + 16); // so that recycle cannot fail
        }
        return made_.emplace_back(std::make_unique<StreamPool>()).get();
    }
    StreamPool *pool = unused_.back();
    unused_.pop_back();
    pool->~StreamPool();
    return new (pool) StreamPool;
}

void Streams::forget(StreamPool &pool) {
    by_key_.erase(pool.key_);
    recycle(pool);
}

void Streams::recycle(StreamPool &pool) {
    pool.stale_ = true;
    unused_.push_back(&pool);
}

void Streams::forget_unregistered() {
    for (auto entry = by_key_.begin(); entry != by_key_.end();) {
        StreamPool &pool = *entry->second;
        entry = pool.registered ? std::next(entry) : by_key_.erase(entry);
        if (!pool.registered) {
            recycle(pool);
        }
    }
}

void Streams::enter(StreamPool &pool, CUstream stream) {
    registered_[stream] = &pool;
    pool.handle_ = stream;
    pool.registered = true;
}

void Streams::leave(StreamPool &pool) {
    const auto found = registered_.find(pool.handle_);
    if (found != registered_.end() && found->second == &pool) {
        registered_.erase(found);
    }
    pool.registered = false;
    pool.handle_ = nullptr;
}

} // namespace emm::pool

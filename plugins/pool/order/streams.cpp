#include "streams.h"

#include "caller.h"

namespace emm::pool {

uint64_t thread_key() {
    static std::atomic<uint64_t> next{first_thread_key};
    thread_local const uint64_t key = next.fetch_add(1, std::memory_order_relaxed);
    return key;
}

Streams::Streams() {
    legacy.registered = true;
}

Streams::~Streams() {
    each([](Domain &domain) { delete &domain; });
    for (Domain *domain : unused_) {
        delete domain;
    }
}

Domain *Streams::find_registered(CUstream stream) const {
    const auto found = registered_.find(stream);
    return found == registered_.end() ? nullptr : found->second;
}

Domain *Streams::find(uint64_t key) const {
    const auto found = by_key_.find(key);
    return found == by_key_.end() ? nullptr : found->second;
}

Domain *Streams::find_announced(CUstream stream) const {
    for (const auto &[key, domain] : by_key_) {
        if (domain->capturing_ > 0 && domain->announced_ == stream) {
            return domain;
        }
    }
    return nullptr;
}

Domain &Streams::find_or_make(uint64_t key) {
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

Domain *Streams::make() {
    if (unused_.empty()) {
        if (unused_.capacity() <= made_) {
            unused_.reserve(2 * made_ + 16); // so that recycle cannot fail
        }
        made_++;
        return new Domain;
    }
    Domain *domain = unused_.back();
    unused_.pop_back();
    domain->~Domain();
    return new (domain) Domain;
}

void Streams::forget(Domain &domain) {
    by_key_.erase(domain.key_);
    recycle(domain);
}

void Streams::recycle(Domain &domain) {
    domain.stale_ = true;
    unused_.push_back(&domain);
}

void Streams::forget_unregistered() {
    for (auto entry = by_key_.begin(); entry != by_key_.end();) {
        Domain &domain = *entry->second;
        entry = domain.registered ? std::next(entry) : by_key_.erase(entry);
        if (!domain.registered) {
            recycle(domain);
        }
    }
}

void Streams::enter(Domain &domain, CUstream stream) {
    registered_[stream] = &domain;
    domain.handle_ = stream;
    domain.registered = true;
}

void Streams::leave(Domain &domain) {
    const auto found = registered_.find(domain.handle_);
    if (found != registered_.end() && found->second == &domain) {
        registered_.erase(found);
    }
    domain.registered = false;
    domain.handle_ = nullptr;
}

} // namespace emm::pool

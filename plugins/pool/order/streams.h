// The stream domains of a manager, by the stream's id and by the handle of those that are
// registered. The pool's lock protects it.
#pragma once

#include "domain.h"

#include <unordered_map>

namespace emm::pool {

class Streams {
public:
    Streams();
    ~Streams();
    Streams(const Streams &) = delete;
    Streams &operator=(const Streams &) = delete;

    Domain *find_registered(CUstream stream) const;
    Domain *find(uint64_t key) const;
    Domain *find_announced(CUstream stream) const; // with a capture that has not ended
    Domain &find_or_make(uint64_t key);            // throws std::bad_alloc
    Domain *make();                                // one that has no key, for captures
    void forget(Domain &domain);                   // which nothing refers to any more
    void recycle(Domain &domain);
    void forget_unregistered();

    void enter(Domain &domain, CUstream stream); // as registered
    void leave(Domain &domain);                  // registered no more
    template <class Function> void each(Function function) {
        for (auto &[key, domain] : by_key_) {
            function(*domain);
        }
    }

    // Streams met for the first time since the others were last asked.
    uint32_t made_since_asked() const { return made_since_asked_; }
    void count_made_anew() { made_since_asked_ = 0; }

    bool several() const { return by_key_.size() + (legacy.newest != 0) > 1; }

    Domain legacy;

private:
    std::unordered_map<uint64_t, Domain *> by_key_;
    std::unordered_map<CUstream, Domain *> registered_;
    std::vector<Domain *> unused_;
    size_t made_ = 0;
    uint32_t made_since_asked_ = 0;
};

// The calling thread's own, never used again, unlike a pthread_t.
uint64_t thread_key();

} // namespace emm::pool

// The free pools of a manager's streams, by the stream's id and by the handle of those that are
// registered. The pool's lock protects it.
#pragma once

#include "stream_pool.h"

#include <memory>
#include <unordered_map>

namespace emm::pool {

class Streams {
public:
    Streams();
    Streams(const Streams &) = delete;
    Streams &operator=(const Streams &) = delete;

    StreamPool *find_registered(CUstream stream) const;
    StreamPool *find(uint64_t key) const;
    StreamPool *find_announced(CUstream stream) const; // with a capture that has not ended
    StreamPool &find_or_make(uint64_t key);            // throws std::bad_alloc
    StreamPool *make();                                // one that has no key, for captures
    void forget(StreamPool &pool);                     // nothing refers to it any more
    void recycle(StreamPool &pool);
    void forget_unregistered();

    void enter(StreamPool &pool, CUstream stream); // as registered
    void leave(StreamPool &pool);                  // registered no more
    template <class Function> void each(Function function) {
        for (auto &[key, pool] : by_key_) {
            function(*pool);
        }
    }

    // Streams met for the first time since the others were last asked.
    uint32_t made_since_asked() const { return made_since_asked_; }
    void reset_made_count() { made_since_asked_ = 0; }

    bool has_several() const { return by_key_.size() + (legacy.newest != 0) > 1; }

    StreamPool legacy;

private:
    std::unordered_map<uint64_t, StreamPool *> by_key_;
    std::unordered_map<CUstream, StreamPool *> registered_;
    std::vector<std::unique_ptr<StreamPool>> made_;
    std::vector<StreamPool *> unused_;
    uint32_t made_since_asked_ = 0;
};

// The calling thread's own, never used again, unlike a pthread_t.
uint64_t thread_key();

} // namespace emm::pool

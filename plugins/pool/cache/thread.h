// The pool's state for each thread: its magazines, and a table that leads from a call's stream to
// one of them.
#pragma once

#include "cuda/lock.h"
#include "magazine.h"
#include "order/own_streams.h"

#include <emm/plugin.h>

#include <vector>

namespace emm::pool {

class Thread {
public:
    // The calling thread's magazine for the stream of a pool; NULL if it has none or is ending.
    static Magazine *magazine_for(uint64_t manager_identity, emm_stream stream) {
        const Thread *const self = self_;
        if (!self) {
            return nullptr;
        }
        const Way &way = self->ways_[number_of(manager_identity, stream)];
        return way.manager == manager_identity && way.stream == stream ? way.magazine : nullptr;
    }

    // The calling thread's record; NULL if it is ending. Throws std::bad_alloc.
    static Thread *self();
    static Thread *self_if_any() { return self_; }

    // Remembers the way to a magazine of this thread.
    void set_way(uint64_t manager_identity, emm_stream stream, Magazine &magazine);
    Magazine *find(const StreamPool &pool, uint64_t manager_identity);
    Magazine &make_magazine(ThreadCaches &caches, uint64_t identity, StreamPool &pool, Depot &depot,
                            const BlockLimits &limits);

    // The calling thread's own stream has been used in the manager of that number.
    static void remember_own_stream(uint64_t manager_number) noexcept;

    // For a pool that ends: no thread is ending with one of its magazines meanwhile.
    static Mutex &ending();

    ~Thread();

private:
    struct alignas(32) Way {
        uint64_t manager = 0;
        emm_stream stream = nullptr;
        Magazine *magazine = nullptr;
    };
    static constexpr unsigned way_bits = 6;

    static unsigned number_of(uint64_t manager_identity, emm_stream stream) {
        const uint64_t mixed = reinterpret_cast<uintptr_t>(stream) + manager_identity;
        return unsigned((mixed * 0x9e3779b97f4a7c15u) >> (64 - way_bits));
    }
    void forget_dead();
    static void end(void *thread); // with its thread
    friend struct EarlyEnd;

    // This TLS model needs one load, even in a library that was opened at run time.
    [[gnu::tls_model("initial-exec")]] static inline constinit thread_local Thread *self_ = nullptr;
    [[gnu::tls_model("initial-exec")]] static inline constinit thread_local bool is_over_ = false;

    Way ways_[1u << way_bits];
    std::vector<std::unique_ptr<Magazine>> magazines_;
    OwnStreams own_streams_;
};

} // namespace emm::pool

// Memory on its way to the driver, from it, or to other addresses. Meanwhile it is in no index, and
// occupies room below `max`. A request that would fail waits for the end of such moves, and tries
// again. The pool's lock is held.
#pragma once

#include "cuda/lock.h"
#include "heap/list.h"

#include <condition_variable>
#include <cstdint>
#include <pthread.h>

namespace emm::pool {

class Moves {
public:
    // While it lives, its thread has memory on its way.
    class Move {
    public:
        explicit Move(Moves &moves) : moves_(moves) { moves_.under_way_++; }
        ~Move() { moves_.end_one(); }
        Move(const Move &) = delete;
        Move &operator=(const Move &) = delete;

    private:
        Moves &moves_;
    };

    // A request that will fail unless memory of another thread arrives.
    class Watch {
    public:
        explicit Watch(Moves &moves) : moves_(moves) { moves_.watches_.push_back(*this); }
        ~Watch() { moves_.watches_.remove(*this); }
        Watch(const Watch &) = delete;
        Watch &operator=(const Watch &) = delete;

    private:
        friend class Moves;
        Moves &moves_;
        const pthread_t thread_ = pthread_self();
        bool saw_one_ = false; // a move of another thread has ended
        Link<Watch> link_;
    };

    Moves() = default;
    Moves(const Moves &) = delete;
    Moves &operator=(const Moves &) = delete;

    // Whether a move of another thread has ended since the watch began; waits for one if needed.
    bool await(Lock &lock, const Watch &watch);

    // While a caller defers the cleanup, nothing goes back to the driver. Memory may move to other
    // addresses, which waits for nothing.
    void defer_returns() { deferring_++; }
    void end_deferral() { deferring_ -= deferring_ > 0 ? 1 : 0; }
    bool returns_are_deferred() const { return deferring_ > 0; }

private:
    void end_one();

    std::condition_variable_any ended_;
    List<Watch, &Watch::link_> watches_;
    uint32_t under_way_ = 0; // number of threads with memory on its way
    uint32_t deferring_ = 0;
};

} // namespace emm::pool

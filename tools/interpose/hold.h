// Holds the program's calls while it is paused from outside (emm pause). A call of a held entry is
// marked in a place of its thread's own: to mark costs a store and a load, with no fence, because
// the thread that closes has the kernel make one on each processor (fence/asymmetric_fence.h). One
// for the process. It needs libc only.
#pragma once

#include "served.h"

#include <atomic>
#include <stdint.h>

namespace emm::run::hold {

// A thread's place. Places are never given back to the system: another thread takes one that a
// thread has left.
struct alignas(64) Place {
    std::atomic<bool> is_inside{false}; // a call of a held entry
    std::atomic<bool> is_taken{true};
    Place *next = nullptr;
};

enum class State : uint32_t { open, closed, ended };
extern constinit std::atomic<State> state;
extern constinit thread_local Place *own_place __attribute__((tls_model("initial-exec")));

// Before the first call. False: the system has nothing for it.
bool start();

inline void mark(Place &place) {
    place.is_inside.store(true, std::memory_order_relaxed);
    std::atomic_signal_fence(std::memory_order_seq_cst);
}

inline void unmark(Place &place) {
    place.is_inside.store(false, std::memory_order_release);
}

// The usual case: a thread's call that begins while nothing is held, to be ended by unmark. NULL:
// it has not begun, and enter_otherwise tells.
[[gnu::always_inline]] inline Place *enter() {
    Place *const place = own_place;
    if (!place || place->is_inside.load(std::memory_order_relaxed)) [[unlikely]] {
        return nullptr;
    }
    mark(*place);
    if (state.load(std::memory_order_acquire) != State::open) [[unlikely]] {
        unmark(*place);
        return nullptr;
    }
    return place;
}

// A thread's first call, one from within another, and the wait while calls are held.
struct Call {
    // To unmark. NULL: this one is not held, because it is spared, or the outer call is waited for.
    Place *place = nullptr;
    int refused = 0; // else the CUresult with which it ends at once
};
Call enter_otherwise();

// What libemm-run gets of it.
extern const HoldCalls calls;

} // namespace emm::run::hold

// Holds the program's calls while it is paused from outside (emm pause). Each thread marks its
// calls of held entries in a place of its own. A mark costs a store and a load, with no fence,
// because the thread that closes has the kernel make one on each processor
// (fence/asymmetric_fence.h). The process has one hold. It needs libc only.
#pragma once

#include "served.h"

#include <atomic>
#include <stdint.h>

namespace emm::run::hold {

// A thread's place. Places are never given back to the system: another thread takes a place that a
// thread has left.
struct alignas(64) Place {
    std::atomic<bool> is_inside{false}; // a call of a held entry
    std::atomic<bool> is_taken{true};
    Place *next = nullptr;
};

enum class State : uint32_t { open, closed, ended };
extern constinit std::atomic<State> state;
extern constinit thread_local Place *own_place __attribute__((tls_model("initial-exec")));

// Call it before the first held call. False: the system lacks a key or memory.
bool start();

inline void mark(Place &place) {
    place.is_inside.store(true, std::memory_order_relaxed);
    std::atomic_signal_fence(std::memory_order_seq_cst);
}

inline void unmark(Place &place) {
    place.is_inside.store(false, std::memory_order_release);
}

// The usual case: calls are not held, and the thread is outside of held calls. unmark ends the
// call. NULL: the call has not begun, and enter_otherwise decides.
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

// The other cases: a thread's first call, a call from within another, and the wait while calls are
// held.
struct Call {
    // To unmark. NULL: this call is not held, because it is spared, or because its outer call is
    // waited for.
    Place *place = nullptr;
    int refused = 0; // otherwise the CUresult with which the call ends at once
};
Call enter_otherwise();

// The calls that libemm-run gets.
extern const HoldCalls calls;

} // namespace emm::run::hold

// Whether the pool's device memory is there. From the beginning of a pause to the end of its
// resume, no call takes or moves device memory. This class alone owns that state. The pool's lock
// is held.
#pragma once

#include "cuda/served_context.h"

#include <condition_variable>

namespace emm::pool {

class PauseState {
public:
    // `serving` is the manager's, and `identity` its value. While requests are kept out, `serving`
    // is 0, and calls find no magazine.
    PauseState(ServedContext &context, std::atomic<uint64_t> &serving, uint64_t identity)
        : context_(context), serving_(serving), identity_(identity) {}
    PauseState(const PauseState &) = delete;
    PauseState &operator=(const PauseState &) = delete;

    // While it lives, its call takes, moves or returns device memory. The lock is held when it
    // begins and ends, even if an exception came while the call had let go of the lock.
    class Use {
    public:
        Use(Lock &lock, PauseState &state) : lock_(lock), state_(state) { state_.uses_++; }
        ~Use();
        Use(const Use &) = delete;
        Use &operator=(const Use &) = delete;

    private:
        Lock &lock_;
        PauseState &state_;
    };

    // A pause or a resume. While it lives, requests are kept out, and earlier ones have ended. At
    // its end the state is restored, unless ends_paused() has set another.
    class Change {
    public:
        Change(Lock &lock, PauseState &state);
        ~Change();
        Change(const Change &) = delete;
        Change &operator=(const Change &) = delete;
        void ends_paused(bool paused) { paused_ = paused; }

    private:
        Lock &lock_;
        PauseState &state_;
        bool paused_;
    };

    bool is_open() const { return !changing_ && !paused_; }
    bool is_paused() const { return paused_; }
    // Whether a Use may begin. If it `waits`, waits until one may. If the context is lost or gone,
    // no resume can come, so there is no wait.
    bool admit(Lock &lock, bool waits);
    void open(); // for a reset, which drops paused memory

private:
    void let_in();

    ServedContext &context_;
    std::atomic<uint64_t> &serving_;
    const uint64_t identity_;
    std::condition_variable_any changed_;
    uint32_t uses_ = 0;
    bool changing_ = false, paused_ = false;
};

} // namespace emm::pool

// Whether the pool's device memory is there. From the beginning of a pause to the end of its resume
// no call takes or moves any. The one owner of that state. The pool's lock is held.
#pragma once

#include "cuda/served_context.h"

#include <condition_variable>

namespace emm::pool {

class PauseState {
public:
    // `serving` is the manager's, and `identity` its value: while requests are kept out, calls find
    // no magazine.
    PauseState(ServedContext &context, std::atomic<uint64_t> &serving, uint64_t identity)
        : context_(context), serving_(serving), identity_(identity) {}
    PauseState(const PauseState &) = delete;
    PauseState &operator=(const PauseState &) = delete;

    // A call that takes, moves or returns device memory, from its making to its end. It has the
    // lock at both times: an exception may have come while it had let go.
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

    // A pause or a resume: requests are kept out, and those that had begun are over. At its end the
    // state is what it was before, unless it was told otherwise.
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
    // Whether a Use may begin; until it may, if it `waits`. A resume that cannot come any more, of
    // a context that is lost or has gone, is not waited for.
    bool admit(Lock &lock, bool waits);
    void open(); // by a reset, which drops what was paused

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

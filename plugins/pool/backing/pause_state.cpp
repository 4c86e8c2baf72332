#include "pause_state.h"

#include <chrono>

namespace emm::pool {
namespace {

// A waiting call looks at the context so often.
constexpr std::chrono::milliseconds between_looks{50};

} // namespace

PauseState::Use::~Use() {
    if (!lock_.owns_lock()) {
        lock_.lock();
    }
    if (--state_.uses_ == 0 && state_.changing_) {
        state_.changed_.notify_all();
    }
}

PauseState::Change::Change(Lock &lock, PauseState &state)
    : lock_(lock), state_(state), paused_(state.paused_) {
    state_.changing_ = true;
    state_.serving_.store(0, std::memory_order_relaxed);
    state_.changed_.wait(lock, [this] { return state_.uses_ == 0; });
}

PauseState::Change::~Change() {
    if (!lock_.owns_lock()) {
        lock_.lock();
    }
    state_.changing_ = false;
    state_.paused_ = paused_;
    if (!paused_) {
        state_.let_in();
    }
}

bool PauseState::admit(Lock &lock, bool waits) {
    while (waits && !is_open() && context_.serves()) {
        if (changed_.wait_for(lock, between_looks) == std::cv_status::timeout) {
            const Unlocked unlocked(lock);
            context_.note_error(context_.make_current().result());
        }
    }
    return is_open();
}

void PauseState::open() {
    if (paused_) {
        paused_ = false;
        let_in();
    }
}

// An error that ends reuse may come at the same time, and takes precedence.
void PauseState::let_in() {
    serving_.store(identity_);
    if (!context_.serves()) {
        serving_.store(0);
    }
    changed_.notify_all();
}

} // namespace emm::pool

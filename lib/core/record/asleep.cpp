#include "core/record/asleep.h"

#include "core/record/this_thread.h"
#include "observe/process.h"

#include <atomic>
#include <cstdlib>

namespace emm::core {
namespace {

enum class State : uint32_t { awake, asleep, ended };

constinit std::atomic<State> state{State::awake};

using Time = std::chrono::steady_clock::time_point;

// A resume has no limit of the operator's. The undoing of a pause begins after the pause's limit.
constexpr std::chrono::seconds longest_wait_of_resume{2};

struct Operators {
    bool is_this_thread = false;
    Time until;
};
[[gnu::tls_model("initial-exec")]] constinit thread_local Operators operators;

// Unless the process ends.
void change_to(State to) noexcept {
    State from = state.load();
    while (from != State::ended && !state.compare_exchange_weak(from, to)) {
    }
    state.notify_all();
}

} // namespace

ForOperator::ForOperator(Time until) noexcept {
    operators = {true, until};
}

ForOperator::~ForOperator() {
    operators = {};
}

bool is_for_operator() noexcept {
    return operators.is_this_thread;
}

OwnerGuard own_for_pause(OwnerLock &lock) {
    return is_for_operator() ? OwnerGuard(lock, operators.until) : OwnerGuard(lock);
}

OwnerGuard own_for_resume(OwnerLock &lock) {
    return is_for_operator()
               ? OwnerGuard(lock, std::chrono::steady_clock::now() + longest_wait_of_resume)
               : OwnerGuard(lock);
}

// When the process ends, the sleep ends too: exit handlers may call emm, and no emm resume will
// come.
void fall_asleep() noexcept {
    static const bool ends = std::atexit([] { change_to(State::ended); }) == 0;
    if (ends) {
        change_to(State::asleep);
    }
}

void wake_up() noexcept {
    change_to(State::awake);
}

bool must_wait_asleep() noexcept {
    return state.load() == State::asleep && !is_for_operator() && !observe::is_forked_child();
}

bool wait_while_asleep() noexcept {
    const bool waits = must_wait_asleep();
    while (must_wait_asleep()) {
        state.wait(State::asleep);
    }
    return waits;
}

} // namespace emm::core

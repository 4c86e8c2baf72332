#include "core/record/asleep.h"

#include "core/record/this_thread.h"
#include "observe/process.h"

#include <atomic>
#include <cstdlib>

namespace emm::core {
namespace {

enum class State : uint32_t { awake, asleep, ended };

constinit std::atomic<State> state{State::awake};
[[gnu::tls_model("initial-exec")]] constinit thread_local bool is_for_operator = false;

// Unless the process ends.
void change_to(State to) noexcept {
    State from = state.load();
    while (from != State::ended && !state.compare_exchange_weak(from, to)) {
    }
    state.notify_all();
}

} // namespace

ForOperator::ForOperator() noexcept {
    is_for_operator = true;
}

ForOperator::~ForOperator() {
    is_for_operator = false;
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
    return state.load() == State::asleep && !is_for_operator && !observe::is_forked_child();
}

bool wait_while_asleep() noexcept {
    const bool waits = must_wait_asleep();
    while (must_wait_asleep()) {
        state.wait(State::asleep);
    }
    return waits;
}

} // namespace emm::core

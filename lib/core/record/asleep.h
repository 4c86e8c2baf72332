// The process sleeps by emm pause (monitor/outside.h). Meanwhile the program's own calls that would
// wake a pool, or find it paused, wait for emm resume, as its calls of CUDA do.
#pragma once

#include "core/record/owner_lock.h"
#include "observe/program_code.h"

#include <emm/emm.h>

#include <chrono>

namespace emm::core {

// A thread that works for emm pause or emm resume waits for neither. It runs no code of the
// program, and waits for a manager's lock for a bounded time only: the lock's owner may run such
// code.
class ForOperator {
public:
    // `until`: the end of the time that a pause may take.
    explicit ForOperator(std::chrono::steady_clock::time_point until) noexcept;
    ~ForOperator();
    ForOperator(const ForOperator &) = delete;
    ForOperator &operator=(const ForOperator &) = delete;

private:
    const observe::NoProgramCode no_program_code_;
};

// Own a manager's lock for a pause, or for a resume. The operator's thread may own nothing after a
// bounded time.
OwnerGuard own_for_pause(OwnerLock &lock);
OwnerGuard own_for_resume(OwnerLock &lock);
bool is_for_operator() noexcept;

// From fall_asleep() on, until wake_up() or the process's end.
void fall_asleep() noexcept;
void wake_up() noexcept;

// Waits as long as this thread's call has to wait. True: it has waited.
bool must_wait_asleep() noexcept;
bool wait_while_asleep() noexcept;

// The final answer to a request of the program. `status` is the first answer, and `ask` repeats the
// request. If the process is not asleep, the sleep may have ended after the answer EMM_E_PAUSED, so
// `ask` runs one last time.
template <class Ask> emm_status ask_awake(emm_status status, Ask ask) noexcept {
    for (bool may_sleep = true; status == EMM_E_PAUSED && may_sleep;) {
        may_sleep = wait_while_asleep();
        status = ask();
    }
    return status;
}

} // namespace emm::core

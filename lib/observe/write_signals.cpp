#include "observe/write_signals.h"

#include <cerrno>
#include <ctime>
#include <pthread.h>

namespace emm::observe {
namespace {

constexpr int write_signals[] = {SIGXFSZ, SIGPIPE};

// Takes back the signal of a write, which waits for its thread.
void forget(int signal) noexcept {
    sigset_t one;
    sigemptyset(&one);
    sigaddset(&one, signal);
    const timespec at_once = {};
    sigtimedwait(&one, nullptr, &at_once);
}

} // namespace

WriteSignalsBlocked::WriteSignalsBlocked() noexcept {
    sigset_t blocked;
    sigemptyset(&blocked);
    for (const int signal : write_signals) {
        sigaddset(&blocked, signal);
    }
    sigpending(&pending_before_);
    pthread_sigmask(SIG_BLOCK, &blocked, &mask_before_);
}

WriteSignalsBlocked::~WriteSignalsBlocked() {
    const int error = errno;
    sigset_t pending;
    sigpending(&pending);
    for (const int signal : write_signals) {
        if (sigismember(&pending, signal) && !sigismember(&pending_before_, signal)) {
            forget(signal);
        }
    }
    pthread_sigmask(SIG_SETMASK, &mask_before_, nullptr);
    errno = error;
}

} // namespace emm::observe

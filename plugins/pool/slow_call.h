// A call that may ask the driver something: one section of relaxed capture mode. Log lines for the
// program wait for its end, because a log may run the program's code.
#pragma once

#include "cache/thread_caches.h"
#include "cuda/relaxed.h"

namespace emm::pool {

// Begin and end it with no lock held.
class SlowCall {
public:
    SlowCall(const Driver &driver, ThreadCaches &caches) : warning_{caches}, section_(driver) {}

private:
    struct Warning {
        ThreadCaches &caches;
        ~Warning() { caches.warn_of_refused_fence(); }
    };

    Warning warning_; // ends last
    RelaxedSection section_;
};

} // namespace emm::pool

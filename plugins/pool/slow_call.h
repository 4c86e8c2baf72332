// A call that may ask the driver something: one section of relaxed capture mode. What the program
// is to be told of it in a log, which may run the program's code, waits for its end.
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

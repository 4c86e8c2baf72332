#pragma once

#include "monitor/figures.h"
#include "monitor/protocol.h"

#include <condition_variable>
#include <mutex>

namespace emm::monitor {

// What the process had to say.
struct Collected {
    std::vector<ContextFigures> contexts; // the oldest first
    std::string report;                   // if it was wished for
    int64_t stuck = 0; // nanoseconds since a plugin was asked, which has not answered
};

// Asks every context on a thread of its own, because a plugin may hang, and may hang for good: then
// what was known by then is the answer, now and later. The thread starts with the first question.
class Collector {
public:
    // For one thread. It waits for about as long as `timeout` (nanoseconds).
    Collected collect(Wish wish, int64_t timeout);

    // The process ends: no plugin is asked any more. Waits for one that is inside, within limits.
    void end(int64_t timeout) noexcept;

private:
    bool begin(Wish wish);
    void run() noexcept;
    void work(Wish wish);
    void work_on(emm_context &context);
    bool wait(std::unique_lock<std::mutex> &lock, int64_t until);

    std::mutex mutex_; // over what follows; not held while a plugin is asked
    std::condition_variable asked_, answered_;
    bool has_thread_ = false, is_busy_ = false, has_ended_ = false;
    Wish wish_ = Wish::figures;
    int64_t since_ = 0;
    Collected found_;
};

} // namespace emm::monitor

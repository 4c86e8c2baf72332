// Waiting on the CPU before the pool grows beyond what it ever held, while idle memory is there
// whose work is only not complete yet. It saves that memory for good, and happens as rarely as such
// growth.
//
// The wait has an end, because work may wait for what its program does once it has its memory. And
// where work takes longer than that, waiting is soon given up: each wait that is broken off halves
// the next, down to about what the growth itself costs, until one comes to its end in time.
#include "stream_order.h"

#include <algorithm>
#include <chrono>
#include <thread>

namespace emm::pool {
namespace {

using std::chrono::microseconds;
using std::chrono::steady_clock;

constexpr microseconds longest_wait(100000);
constexpr uint32_t halvings = 10;
constexpr int eager_rounds = 20;
constexpr microseconds pause_between(20);

void let_time_pass(int round) {
    if (round < eager_rounds) {
        std::this_thread::yield();
    } else {
        std::this_thread::sleep_for(pause_between);
    }
}

} // namespace

// Whether an event has been recorded that was not complete when it was asked.
bool StreamOrder::is_working() const {
    bool working = !unordered_.events_.empty();
    for (const StreamPool *d = askable_.first(); d && !working; d = askable_.next(*d)) {
        working = !d->events_.empty();
    }
    return working && context_.serves();
}

// Until there is enough or nothing more to come, for calls on a stream. Not while a capture is
// announced. Other threads' calls go on meanwhile.
void StreamOrder::wait_bounded(Lock &lock, const StreamPool &pool,
                               const std::function<bool()> &enough) {
    if (pool.order != Order::stream || announced_ > 0) {
        return;
    }
    const uint32_t shift = std::min(waits_broken_off_, halvings);
    const auto end = steady_clock::now() + longest_wait / (1 << shift);
    record_and_query_all(lock, false);
    bool over = enough() || !is_working();
    for (int round = 0; !over && announced_ == 0 && steady_clock::now() < end; round++) {
        lock.unlock();
        let_time_pass(round);
        lock.lock();
        query_streams(lock, false);
        over = enough() || !is_working();
    }
    waits_broken_off_ = over ? 0 : shift + 1;
}

} // namespace emm::pool

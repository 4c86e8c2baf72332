// Waits on the CPU before the pool grows beyond what it ever held, if idle memory is there that is
// only not complete yet. The wait saves memory permanently, and is as rare as such growth. A call
// on a stream may wait; a call without a stream waits only if much of the freed memory is pending.
//
// The wait has an end, because work on the device may wait for something that the program does
// after this allocation. If work takes longer than that, the pool soon stops waiting:
// policy/events.h has the numbers. Without a stream the wait goes on until the work that was under
// way at its beginning is complete, because CUDA's own cuMemFree would have waited for all work.
#include "stream_order.h"

#include <chrono>
#include <thread>

namespace emm::pool {
namespace {

using std::chrono::nanoseconds;
using std::chrono::steady_clock;

void let_time_pass(uint32_t round) {
    if (const uint64_t pause = pause_ns(round)) {
        std::this_thread::sleep_for(nanoseconds(pause));
    } else {
        std::this_thread::yield();
    }
}

} // namespace

// Whether an event has been recorded that was not complete at the last query.
bool StreamOrder::is_working() const {
    bool working = !unordered_.events_.empty();
    for (const StreamPool *d = askable_.first(); d && !working; d = askable_.next(*d)) {
        working = !d->events_.empty();
    }
    return working && context_.serves();
}

// Waits until there is enough, or nothing more can come; not while a capture is announced. Other
// threads' calls go on meanwhile.
void StreamOrder::wait_bounded(Lock &lock, const StreamPool &pool,
                               const std::function<bool()> &has_enough) {
    if (announced_ > 0) {
        return;
    }
    const bool on_stream = pool.order == Order::stream;
    auto last_progress = steady_clock::now();
    const nanoseconds wait(
        on_stream ? wait_ns_
                  : context_wait_ns(nanoseconds(last_progress - made_).count(), waited_in_vain_));
    record_and_query_all(lock, false);
    const uint64_t last_recorded = unordered_.recorded;
    uint64_t completed = unordered_.completed;
    const auto is_over = [&] {
        return has_enough() || !is_working() || (!on_stream && completed >= last_recorded);
    };
    bool over = is_over();
    for (uint32_t round = 0; !over && announced_ == 0 && steady_clock::now() - last_progress < wait;
         round++) {
        lock.unlock();
        let_time_pass(round);
        lock.lock();
        query_streams(lock, false);
        if (!on_stream && unordered_.completed > completed) {
            completed = unordered_.completed;
            last_progress = steady_clock::now();
        }
        over = is_over();
    }
    if (announced_ > 0) {
        return; // a failure tells nothing about the work
    }
    if (on_stream) {
        wait_ns_ = next_wait_ns(wait.count(), !over);
    } else if (!over) {
        waited_in_vain_ += wait.count();
    }
}

// For a trim: waits a bounded time, so that finished work is seen. The driver needs a moment for
// an event, even if no work is before it. Unordered frees beside captures have no event, and wait
// for all work.
void StreamOrder::await_recorded(Lock &lock) {
    if (announced_ > 0 && unordered_.newest > unordered_.completed && context_.serves()) {
        wait_beside_captures(lock);
    }
    for (int i = 0; i < trim_rounds && is_working(); i++) {
        lock.unlock();
        std::this_thread::sleep_for(nanoseconds(trim_pause_ns));
        lock.lock();
        query_streams(lock, false);
    }
}

} // namespace emm::pool

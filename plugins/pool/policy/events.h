// The numbers that decide when events are recorded, and how long the CPU waits: pure functions.
#pragma once

#include <cstddef>
#include <cstdint>

namespace emm::pool {

// Whether an unregistered stream gets an event for its frees: after 2 MiB, so that memory comes
// back soon and the cost (0.2 us) does not show. A stream that frees as much as it allocates
// (`balance`) may be about to end, so it gets an event the first 16 times; afterwards it counts as
// long-lived.
bool is_worth_a_stream_event(uint64_t bytes, int64_t balance, uint32_t events_made);

// Whether portable pinned memory freed with no stream is worth a mark in every context: after 64
// frees or 2 MiB, because a mark costs an event in each context.
bool is_worth_a_mark(uint32_t frees, uint64_t bytes);

// How many streams are asked which work is complete, after `made` new ones. Unregistered streams
// may end at any time. So for each 32 new ones twice as many are asked, and streams whose work is
// complete are forgotten.
size_t streams_to_ask(uint32_t made);

// How long the CPU waits for memory before the pool grows, until the first wait times out. Longer
// work is not waited for at every growth.
constexpr uint64_t longest_wait_ns = 100'000'000;

// The next wait: each time-out halves it, down to about the cost of the growth itself, until a wait
// succeeds.
uint64_t next_wait_ns(uint64_t wait_ns, bool broken_off);

// The same for calls with no stream, for a wait in which no event completes. `elapsed` nanoseconds
// have passed in total, and `in_vain` were spent in such waits since the last event completed.
// Beside endless work they take 20 ms and a 20th of the time, but at most 1 s.
uint64_t context_wait_ns(uint64_t elapsed, uint64_t in_vain);

// The pause before the next question in that wait. None for the first 20 rounds, because most work
// that is nearly done is done by then; then longer every eighth time, up to 1 ms.
uint64_t pause_ns(uint32_t round);

// A trim asks so often about the recorded events, with this pause between: a millisecond, so that
// finished work is seen.
constexpr int trim_rounds = 50;
constexpr uint64_t trim_pause_ns = 20'000;

// Incomplete events on the context, and marks in every context, at a time. The bound keeps endless
// work from adding ever more.
constexpr int most_context_events = 16;
constexpr size_t most_marks = 4;

} // namespace emm::pool

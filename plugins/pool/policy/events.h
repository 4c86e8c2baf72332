// The numbers that decide when events are recorded, and how long the CPU waits: pure functions.
#pragma once

#include <cstddef>
#include <cstdint>

namespace emm::pool {

// Whether an unregistered stream gets an event for what it has freed: for 2 MiB, often enough that
// memory is not long in coming back, rarely enough that its cost (0.2 us) does not show. One that
// frees as much as it allocates (`balance`) may be about to end, so its first 16 times it gets one;
// a stream that does so all day does not.
bool is_worth_a_stream_event(uint64_t bytes, int64_t balance, uint32_t events_made);

// Whether portable pinned memory that was freed with no stream is worth a mark in every context:
// for 64 frees or 2 MiB, because a mark costs an event in each.
bool is_worth_a_mark(uint32_t frees, uint64_t bytes);

// How many streams are asked what is complete, after so many were met for the first time: streams
// that are not registered may end at any time, so for each 32 new ones twice as many are asked, and
// those whose work is complete are forgotten.
size_t streams_to_ask(uint32_t made);

// How long the CPU waits for memory before the pool grows, until the first wait is broken off. Work
// that takes longer than this is not waited for at every growth.
constexpr uint64_t longest_wait_ns = 100'000'000;

// How long it waits the next time: each wait that is broken off halves it, down to about what the
// growth itself costs, until one comes to its end in time.
uint64_t next_wait_ns(uint64_t wait_ns, bool broken_off);

// The same for calls with no stream, for a wait in which no event comes to be complete. `elapsed`
// nanoseconds have passed in all, and `in_vain` have gone into such waits since the last event that
// came to be: beside work that does not end they take 20 ms and a 20th of the time, but no more
// than 1 s.
uint64_t context_wait_ns(uint64_t elapsed, uint64_t in_vain);

// How long to pause before asking again in that wait: not at all for the first 20 rounds, because
// most work that is nearly done is done by then; then longer every eighth time, up to 1 ms.
uint64_t pause_ns(uint32_t round);

// A trim asks about the event that it has just recorded as often as this, with such a pause
// between: a millisecond, in which work that is done by then is seen to be.
constexpr int trim_rounds = 50;
constexpr uint64_t trim_pause_ns = 20'000;

// Events on the context, and marks in every context, that may be incomplete at a time: work that
// does not end for long must not make them ever more.
constexpr int most_context_events = 16;
constexpr size_t most_marks = 4;

} // namespace emm::pool

// The numbers that decide how growth by pieces spends memory and the driver's time, and when memory
// that was freed with no stream is worth an event: pure functions.
#pragma once

#include "heap/pieces.h"

#include <cstddef>
#include <cstdint>

namespace emm::pool {

// What the driver takes, in nanoseconds, measured on an H200. It is paid by the piece, hardly by
// the byte, up to `cheap_to_release`.
constexpr uint64_t create_ns = 13'000;
constexpr uint64_t map_ns = 40'000; // with cuMemSetAccess
constexpr uint64_t unmap_ns = 23'000;
constexpr uint64_t release_ns = 27'000;
constexpr uint64_t cheap_to_release = 64 << 20;

// How many places may stay mapped that nothing uses, of all pieces together: while there are more,
// each move ends some of the oldest. Each costs the host 8 bytes and the driver its page table, and
// at most 20 us when the pool ends.
constexpr size_t most_idle_places = 1024;

// How many of them end with a move of that many pieces: more than it makes, and no request pays for
// all that others have left.
constexpr size_t ended_at_once(size_t moved) {
    return 2 * moved + 16;
}

// Memory that may be held: `slack` is a part of the most that was ever needed.
struct Allowance {
    uint64_t claimed = 0; // bytes held, or on their way from the driver
    uint64_t most = 0;    // bytes ever needed at a time, with the request that is being served
    uint64_t limit = 0;   // bytes that may ever be held: `max`, or what the device has
    double slack = 0;
    uint64_t pending = 0; // bytes freed that no request may have yet, which are needed too
    bool fills = false;   // whether the program has freed hardly anything yet
};

// The part of the most ever needed that may lie idle before anything moves: no more than 1/36.
// NOTES.md has what other parts came to.
double free_slack(double slack);

// How many of `wanted` bytes may be new memory if `part` of the most ever needed may lie idle.
uint64_t new_bytes(uint64_t wanted, const Allowance &allowance, double part);

// Whether a request may take what is left of the slack when moving has become too expensive. One of
// 1/16 of all and more may not: it would take the slack at once, and the next one would move.
bool may_use_slack(uint64_t missing, uint64_t most);

// Nanoseconds that moving may have cost, beyond what growing would have, after so many calls, which
// asked for so many bytes: 10 ms for the beginning of a program, 12 ns a call, and for each MiB a
// twentieth of the time that the device takes to write it.
uint64_t moving_allowance(uint64_t calls, uint64_t bytes);

// Whether hardly anything has been freed yet: 1/1024 of all that was asked for, at most. So a
// program begins that loads weights or data, which it keeps: memory that is not freed need not be
// movable.
bool is_filling(uint64_t requested, uint64_t live);

// The size of the pieces that new memory for a request is made of: an eighth of it, so that what a
// later and smaller request leaves of a piece is not much; but 1/64 of all at least, up to what is
// cheap to release, which keeps the pieces of a whole program few. While the program fills its
// memory a piece may be all of the request, up to 1/32 of what is held, and no more than what is
// cheap to release. No piece is more than 1/4096 of the limit: a piece that is in part in use
// cannot move, so its free part serves no large request, and the limit may be reached at any time.
// Where slack is not wanted each piece is a page. Rounded down to a power of two, a page at least.
uint64_t piece_bytes(uint64_t missing, const Allowance &allowance);

// How much to grow by for a request that growth alone serves: a piece at least, while that costs no
// more than the free slack. Where memory is pending more requests will follow that find none, so it
// is `slack` times what is pending, while the slack has room for that.
uint64_t growth_bytes(uint64_t missing, const Allowance &allowance);

// The largest free block of the large zone that a small request may take: smaller than a page,
// since no page can be had from it. None where slack is not wanted: the small request would split
// what a large one may need, and the pages beside it with it.
uint64_t most_of_large_zone(double slack);

// How many addresses to reserve for a request, beside `held` bytes of them: 4 GiB, 16 times the
// request, and as many as there are already, which keeps ranges few. Addresses cost no memory.
uint64_t address_bytes(uint64_t bytes, uint64_t held);

// Whether the driver is first asked for so many new pieces as one, to see if it has that much: 32
// and more, because then one more call does not show.
bool is_worth_a_trial(size_t pieces);

// Frees of large blocks that one event serves at least.
constexpr uint32_t least_frees_an_event = 48;

// And of blocks of that size. A thread hands so many over at a time: as many as 8 MiB hold, because
// the driver's calls for an event are most of what a pair costs, and the memory is little; from 48
// to 128.
constexpr uint32_t most_frees_a_batch = 128;
uint32_t frees_a_batch(uint64_t block_bytes);

// How many bytes a thread may have freed with no stream before it hands them over, where so much
// may ever be held: what is worth an event. And the largest block that it keeps for its next
// request of that size: so large that four of them are one such batch.
uint64_t bytes_a_batch(uint64_t limit);
uint64_t largest_kept(uint64_t limit);

// Whether what such threads have handed over is worth an event: one more block would be too much
// for a batch.
bool is_a_batch(uint32_t blocks, uint64_t bytes, uint64_t limit);

// How many bytes of such blocks all threads may keep from the heap: as much as the pool may hold
// before it rather asks the driver than grows for such a request.
uint64_t most_kept(uint64_t limit);

// Whether memory that was freed with no stream is worth an event on the context: so rarely that one
// event serves many frees of any size, but for each 96th of what the device has, so that a wait is
// short. An empty allowance stands for 2 MiB.
bool is_worth_an_event(uint32_t frees, uint64_t bytes, const Allowance &allowance);

// Whether a request with no stream grows the pool rather than ask the driver what is complete of
// the memory that is pending: until two batches of such requests can be in turn, on no more than
// 1/32 of what the device has.
bool may_grow_unasked(uint64_t bytes, const Allowance &allowance);

// Whether a request with no stream waits a while before the pool grows, where `used` bytes are in
// use: once an eighth of that is pending, and a 96th of what the device has. A program that frees
// so and runs ahead of the device would else hold all that it frees in the meantime; CUDA's own
// cuMemFree waits each time. One that uses less than a 512th of the device is not made to wait.
bool is_worth_a_wait(uint64_t used, const Allowance &allowance);

} // namespace emm::pool

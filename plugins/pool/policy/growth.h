// The numbers that decide how growth by pieces spends memory and the driver's time, and when frees
// with no stream are worth an event: pure functions.
#pragma once

#include "heap/pieces.h"

#include <cstddef>
#include <cstdint>

namespace emm::pool {

// The cost of driver calls in nanoseconds, measured on an H200. Up to `cheap_to_release`, the cost
// depends on the number of pieces, hardly on their bytes.
constexpr uint64_t create_ns = 13'000;
constexpr uint64_t map_ns = 40'000;    // cuMemMap and cuMemSetAccess
constexpr uint64_t one_map_ns = 2'000; // cuMemMap alone: pieces side by side get access together
constexpr uint64_t unmap_ns = 23'000;
constexpr uint64_t release_ns = 27'000;
constexpr uint64_t cheap_to_release = 64 << 20;

// Mapped places that nothing uses, over all pieces. Beyond this, each move ends some of the oldest.
// Each place costs the host 8 bytes and the driver its page table, and at most 20 us when the pool
// ends.
constexpr size_t most_idle_places = 1024;

// How many of those places end with a move of `moved` pieces: more than the move makes, but no
// request pays for all old ones.
constexpr size_t ended_at_once(size_t moved) {
    return 2 * moved + 16;
}

// Memory that may be held. `slack` is a fraction of the largest need so far.
struct Allowance {
    uint64_t claimed = 0; // bytes held, or on their way from the driver
    uint64_t most = 0;    // largest need so far in bytes, including the present request
    uint64_t limit = 0;   // bytes that may ever be held: `max`, or the device's memory
    double slack = 0;
    uint64_t pending = 0; // freed bytes that no request may have yet; they are needed too
    bool fills = false;   // whether the program has freed hardly anything yet
};

// The fraction of the largest need that may lie idle before anything moves: at most 1/36. NOTES.md
// has measurements of other fractions.
double free_slack(double slack);

// How many of `wanted` bytes may be new memory if the fraction `part` of the largest need may lie
// idle.
uint64_t new_bytes(uint64_t wanted, const Allowance &allowance, double part);

// Whether a pool that holds `held` bytes may take `bytes` more once `leaving` have gone: up to
// `max`. If the program has lowered `max` below what is held, memory still moves and is exchanged.
bool may_take(uint64_t held, uint64_t bytes, uint64_t leaving, uint64_t max);

// Whether a request may use the rest of the slack when moving has become too expensive. A request
// of 1/16 of all or more may not: it would use up the slack at once, and the next request would
// move memory.
bool may_use_slack(uint64_t missing, uint64_t most);

// Nanoseconds that moving may have cost, beyond the cost of growing, after so many calls and
// requested bytes: 10 ms for a program's beginning, 12 ns a call, and for each MiB a twentieth of
// the time that the device takes to write it.
uint64_t moving_allowance(uint64_t calls, uint64_t bytes);

// Whether hardly anything has been freed yet: at most 1/1024 of all requested bytes. A program that
// loads weights or data begins so, and keeps them: memory that is not freed need not be movable.
bool is_filling(uint64_t requested, uint64_t live);

// The size of the pieces of new memory for a request, rounded down to a power of two, and at least
// a page.
// - Usually 1/32 of the request, so that a later and smaller request leaves little of a piece
// unused; but at least 1/128 of all memory, up to the size that is cheap to release, which keeps
// the number of pieces low.
// - While the program fills its memory, a piece may be as large as the request, up to 1/32 of the
// held memory and up to the size that is cheap to release.
// - At most 1/4096 of the limit: a piece that is partly in use cannot move, so its free part serves
// no large request, and the limit may be reached at any time.
// - Without slack, each piece is a page.
uint64_t piece_bytes(uint64_t missing, const Allowance &allowance);

// The size of those pieces once more than half of the limit is held: at most 1/8192 of it. Such a
// program may need the last bytes, too, and of them least is lost in pieces that cannot move.
uint64_t piece_near_limit(uint64_t piece, const Allowance &allowance);

// The largest piece that a resume makes of neighbours within one block: 256 MiB, and at most 1/256
// of the limit. This is more than piece_bytes allows, because such a block mostly stays, and the
// program frees all of it together. Without slack, a resume joins nothing.
constexpr uint64_t joined_bytes(uint64_t limit, double slack) {
    constexpr uint64_t most = 256 << 20;
    return slack <= 0 ? 0 : limit / 256 < most ? limit / 256 : most;
}

// How much to grow by for a request that growth alone serves: at least a piece, while that costs no
// more than the free slack. If memory is pending, more requests that find none will follow. So the
// growth is `slack` times the pending bytes, while the slack has room for that.
uint64_t growth_bytes(uint64_t missing, const Allowance &allowance);

// The largest free block of the large zone that a small request may take: less than a page, because
// no page can be made of it. With slack 0, none: the small request would split a block that a large
// one may need, and with it the pages beside it.
uint64_t most_of_large_zone(double slack);

// Addresses to reserve for a request, besides `held` bytes of them: 4 GiB, 16 times the request,
// and as many as are held, which keeps ranges few. Addresses cost no memory.
uint64_t address_bytes(uint64_t bytes, uint64_t held);

// The addresses to try next where `refused` were too many for the driver or the process: half as
// many, but no fewer than the request needs. 0: those were refused.
uint64_t fewer_addresses(uint64_t refused, uint64_t bytes);

// Whether the pool first makes sure that the driver has room for all new pieces: for 32 pieces or
// more, because then the time of one more call hardly matters.
bool is_worth_a_trial(size_t pieces);

// The least number of frees of large blocks for one event.
constexpr uint32_t least_frees_an_event = 48;

// Blocks that a thread hands over at a time: as many as 8 MiB hold, from 48 to 128. The driver's
// calls for an event are most of the cost of a pair, and the memory is little.
constexpr uint32_t most_frees_a_batch = 128;
uint32_t frees_a_batch(uint64_t block_bytes);

// Unordered bytes that a thread batches, given the pool's limit: enough to be worth an event. Also
// the largest block that it keeps for its next request of the size: four of them are one batch.
uint64_t bytes_a_batch(uint64_t limit);
uint64_t kept_block_limit(uint64_t limit);

// Whether blocks handed over by such threads are worth an event: one more would exceed a batch.
bool is_a_batch(uint32_t blocks, uint64_t bytes, uint64_t limit);

// Bytes of such blocks that all threads may keep from the heap: up to this amount, the pool prefers
// growing to asking the driver.
uint64_t kept_bytes_limit(uint64_t limit);

// Whether unordered frees are worth an event on the context: so rarely that one event serves many
// frees of any size, but at least for each 96th of the device's memory, so that waits are short. An
// empty allowance stands for 2 MiB.
bool is_worth_an_event(uint32_t frees, uint64_t bytes, const Allowance &allowance);

// Whether a request with no stream grows the pool rather than ask further, which pending memory
// would serve it: until two batches of such requests fit, on at most 1/32 of the device's memory.
bool may_grow_unasked(uint64_t bytes, const Allowance &allowance);

// Whether a request with no stream that finds nothing asks first which pending memory is complete:
// once 192 MiB are pending. The answer takes a microsecond, growth a hundred and more; but a pair
// of up to 2 MiB must not take a microsecond either, so two batches of such may grow unasked.
bool is_worth_a_question(const Allowance &allowance);

// How many bytes of one size a thread takes from the heap at a time for requests with no stream:
// 1/64 of the pending bytes once a question is worth it, else 0, which stands for one block. While
// nothing becomes complete, each request would take the pool's lock; and those bytes are few beside
// what is pending.
uint64_t bytes_ahead(const Allowance &allowance);

// Whether a request with no stream waits a while before the pool grows, with `used` bytes in use:
// once an eighth of that is pending, and a 96th of the device's memory. Otherwise a program that
// frees so and runs ahead of the device would hold everything it frees meanwhile; CUDA's own
// cuMemFree waits each time. A program that uses less than a 512th of the device never waits.
bool is_worth_a_wait(uint64_t used, const Allowance &allowance);

} // namespace emm::pool

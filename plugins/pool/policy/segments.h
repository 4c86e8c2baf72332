// The numbers that decide how growth by segments of cuMemAlloc spends memory and the driver's time:
// pure functions.
#pragma once

#include "heap/segment.h"

#include <cstdint>

namespace emm::pool {

// Bytes held and bytes needed.
struct SegmentUse {
    uint64_t claimed = 0; // held, or on its way from the driver
    uint64_t small = 0;   // of `claimed`, in segments for small requests
    uint64_t peak = 0;    // the most ever held
    uint64_t initial = 0; // taken at the beginning, and kept
    uint64_t taken = 0;   // of no use to other requests
    uint64_t most = 0;    // the most ever taken, including the present request
};

// How much to grow by. Requests share segments of a 32nd of the small ones, or a 16th of all, up to
// 32 MiB: larger segments overshoot, smaller ones leave gaps that cannot be joined. Larger requests
// get segments of their size, and so does each request with a segment of its own. `least` is the
// program's choice instead of such a share; 0: none.
uint64_t segment_bytes(uint64_t bytes, Zone zone, uint64_t least, const SegmentUse &use);

// Bytes of idle segments that must go back before the pool grows: those beyond the most ever held,
// and beyond 1/64 more than the largest need. That keeps reserved memory close to live memory, and
// ends with the warm-up.
uint64_t bytes_to_exchange(uint64_t growth, const SegmentUse &use);

// The largest free block that a request may be cut from. While the growth fits into 1/64 more than
// the largest need, this is 16 times the request: a small piece would keep an idle segment from
// serving its own size. Later only a huge request is choosy, by a quarter of itself, if it is 1/16
// of all and the pool holds 1/8 more than it needs: then exchanging pays.
uint64_t cut_limit(uint64_t bytes, uint64_t growth, bool may_exchange, const SegmentUse &use);

// Whether a small request grows the pool before it waits for other streams: if small segments stay
// within 1/64 of all, or if that much was held before and a quarter of it is not needed now.
bool small_grows_first(uint64_t growth, const SegmentUse &use);

} // namespace emm::pool

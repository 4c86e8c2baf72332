// The zone of the heap for a request. Zones keep small blocks apart, and blocks that have a segment
// alone.
#pragma once

#include "backing/options.h"
#include "heap/segment.h"

namespace emm::pool {

// The bytes of a block that is no slot. With ipc=dedicated, blocks from a certain size on are whole
// segments, and no smaller block is a multiple of a segment's granule.
inline uint64_t block_bytes(const Options &options, uint64_t size) {
    const uint64_t bytes = round_up(size, granule);
    return bytes < options.dedicated_from ? bytes : round_up(bytes, segment_granule);
}

inline Zone zone_for(const Options &options, uint64_t bytes) {
    if (bytes >= options.dedicated_from && bytes % segment_granule == 0) {
        return Zone::dedicated;
    }
    return bytes <= small_limit ? Zone::small : Zone::large;
}

} // namespace emm::pool

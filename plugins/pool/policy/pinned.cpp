#include "pinned.h"

#include "heap/segment.h"

#include <algorithm>

namespace emm::pool {
namespace {

// Measured on an H200: a query of a stream, and pinning memory.
constexpr uint64_t question_ns = 150;
constexpr uint64_t pin_ns = 700'000;
constexpr uint64_t pin_ns_per_mib = 400'000;

constexpr uint32_t most_growths = 8;
constexpr uint64_t blocks_a_segment = 8;
constexpr uint64_t most_for_several = 32 << 20;

} // namespace

bool is_worth_pinning(uint64_t bytes, uint32_t questions, uint32_t growths) {
    const uint64_t pinning = pin_ns + (bytes >> 20) * pin_ns_per_mib;
    return growths < most_growths && questions * question_ns > pinning;
}

uint64_t pinned_bytes(uint64_t bytes) {
    const uint64_t several = std::min(bytes * blocks_a_segment, most_for_several);
    return round_up(std::max(bytes, several), segment_granule);
}

} // namespace emm::pool

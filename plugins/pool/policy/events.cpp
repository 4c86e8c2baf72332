#include "events.h"

#include <algorithm>

namespace emm::pool {
namespace {

constexpr uint64_t bytes_an_event = 2 << 20;
constexpr uint32_t early_events = 16;
constexpr uint32_t frees_a_mark = 64;
constexpr uint64_t bytes_a_mark = 2 << 20;
constexpr uint32_t streams_a_round = 32;
constexpr uint64_t shortest_wait_ns = longest_wait_ns / 1024;
constexpr uint64_t vain_wait_ns = 20'000'000, part_in_vain = 20, most_in_vain_ns = 1'000'000'000;
constexpr uint32_t eager_rounds = 20;
constexpr uint32_t rounds_a_pause = 8;
constexpr uint64_t shortest_pause_ns = 20'000, longest_pause_ns = 1'000'000;

} // namespace

bool is_worth_a_stream_event(uint64_t bytes, int64_t balance, uint32_t events_made) {
    return bytes >= bytes_an_event || (balance <= 0 && events_made < early_events);
}

bool is_worth_a_mark(uint32_t frees, uint64_t bytes) {
    return frees >= frees_a_mark || bytes >= bytes_a_mark;
}

size_t streams_to_ask(uint32_t made) {
    return made >= streams_a_round ? 2 * streams_a_round : 0;
}

uint64_t next_wait_ns(uint64_t wait_ns, bool broken_off) {
    return broken_off ? std::max(wait_ns / 2, shortest_wait_ns) : longest_wait_ns;
}

uint64_t context_wait_ns(uint64_t elapsed, uint64_t in_vain) {
    const uint64_t allowed = std::min(vain_wait_ns + elapsed / part_in_vain, most_in_vain_ns);
    const uint64_t left = allowed - std::min(allowed, in_vain);
    return std::clamp(left, shortest_wait_ns, longest_wait_ns);
}

uint64_t pause_ns(uint32_t round) {
    if (round < eager_rounds) {
        return 0;
    }
    const uint32_t doublings = std::min((round - eager_rounds) / rounds_a_pause, 16u);
    return std::min(shortest_pause_ns << doublings, longest_pause_ns);
}

} // namespace emm::pool

#include "growth.h"

#include "heap/segment.h"

#include <algorithm>
#include <bit>

namespace emm::pool {
namespace {

constexpr double most_free_slack = 1.0 / 36;
constexpr uint64_t part_beyond_slack = 16;

constexpr uint64_t allowance_ns = 10'000'000;
constexpr uint64_t allowance_ns_per_call = 12;
constexpr uint64_t allowance_ns_per_mib = 12;

constexpr uint32_t frees_an_event = 256;
constexpr uint64_t least_an_event = 2 << 20;
constexpr uint64_t most_bytes_a_batch = 8 << 20;
constexpr uint64_t batches_in_turn = 2;
constexpr uint64_t part_held_unasked = 32;
constexpr uint64_t pending_unasked = 192 << 20;
constexpr uint64_t part_pending_ahead = 64;
constexpr uint64_t blocks_a_batch = 4;
constexpr uint64_t part_used_pending = 8, part_held_pending = 96, part_held_small = 512;

constexpr uint64_t pieces_a_request = 32;
constexpr uint64_t pieces_of_all = 128;
constexpr uint64_t part_freed_filling = 1024;
constexpr uint64_t pieces_of_all_filling = 32;
constexpr uint64_t least_pieces = 4096;
constexpr uint64_t least_pieces_near_limit = 8192;
constexpr size_t pieces_to_try = 32;

constexpr uint64_t least_addresses = uint64_t(4) << 30;
constexpr uint64_t addresses_a_request = 16;

uint64_t with_slack(uint64_t most, double part) {
    return most + uint64_t(double(most) * part);
}

uint64_t most_unasked(const Allowance &allowance) {
    return allowance.limit / part_held_unasked;
}

} // namespace

double free_slack(double slack) {
    return std::min(slack, most_free_slack);
}

uint64_t new_bytes(uint64_t wanted, const Allowance &allowance, double part) {
    const uint64_t goal = std::min(allowance.limit, with_slack(allowance.most, part));
    const uint64_t room = goal > allowance.claimed ? goal - allowance.claimed : 0;
    return std::min(wanted, room / page_bytes * page_bytes);
}

bool may_take(uint64_t held, uint64_t bytes, uint64_t leaving, uint64_t max) {
    return bytes - std::min(bytes, leaving) <= max - std::min(max, held);
}

bool may_use_slack(uint64_t missing, uint64_t most) {
    return missing < most / part_beyond_slack;
}

uint64_t moving_allowance(uint64_t calls, uint64_t bytes) {
    return allowance_ns + calls * allowance_ns_per_call + (bytes >> 20) * allowance_ns_per_mib;
}

bool is_filling(uint64_t requested, uint64_t live) {
    return requested - std::min(requested, live) <= requested / part_freed_filling;
}

uint64_t piece_bytes(uint64_t missing, const Allowance &allowance) {
    const auto piece = [](uint64_t bytes) { return std::max(page_bytes, std::bit_floor(bytes)); };
    if (allowance.slack == 0) {
        return page_bytes;
    }
    const uint64_t least = std::min(allowance.claimed / pieces_of_all, cheap_to_release);
    const uint64_t filling =
        allowance.fills ? std::min(allowance.claimed / pieces_of_all_filling, cheap_to_release) : 0;
    const uint64_t wanted =
        std::max({missing / pieces_a_request, least, std::min(missing, filling)});
    return piece(std::min(wanted, allowance.limit / least_pieces));
}

uint64_t piece_near_limit(uint64_t piece, const Allowance &allowance) {
    const bool is_near = allowance.claimed > allowance.limit / 2;
    const uint64_t most = std::bit_floor(allowance.limit / least_pieces_near_limit);
    return is_near ? std::min(piece, std::max(page_bytes, most)) : piece;
}

uint64_t growth_bytes(uint64_t missing, const Allowance &allowance) {
    const uint64_t piece = piece_bytes(missing, allowance);
    const uint64_t free = new_bytes(piece, allowance, free_slack(allowance.slack));
    const uint64_t pages = uint64_t(double(allowance.pending) * allowance.slack) / page_bytes;
    const uint64_t least = free >= piece ? std::max(missing, piece) : missing;
    return std::max(least, new_bytes(pages * page_bytes, allowance, allowance.slack));
}

uint64_t most_of_large_zone(double slack) {
    return slack > 0 ? page_bytes - 1 : 0;
}

uint64_t address_bytes(uint64_t bytes, uint64_t held) {
    return std::max({least_addresses, round_up(addresses_a_request * bytes, page_bytes), held});
}

uint64_t fewer_addresses(uint64_t refused, uint64_t bytes) {
    const uint64_t needed = round_up(bytes, page_bytes);
    return refused > needed ? std::max(needed, refused / 2 / page_bytes * page_bytes) : 0;
}

bool is_worth_a_trial(size_t pieces) {
    return pieces >= pieces_to_try;
}

uint64_t bytes_a_batch(uint64_t limit) {
    return limit / part_held_pending;
}

uint64_t kept_block_limit(uint64_t limit) {
    return bytes_a_batch(limit) / blocks_a_batch;
}

uint32_t frees_a_batch(uint64_t block_bytes) {
    return uint32_t(std::clamp<uint64_t>(most_bytes_a_batch / std::max<uint64_t>(block_bytes, 1),
                                         least_frees_an_event, most_frees_a_batch));
}

bool is_a_batch(uint32_t blocks, uint64_t bytes, uint64_t limit) {
    return blocks > 0 && (blocks >= frees_a_batch(bytes / blocks) ||
                          bytes + bytes / blocks > bytes_a_batch(limit));
}

uint64_t kept_bytes_limit(uint64_t limit) {
    return limit / part_held_unasked;
}

bool is_worth_an_event(uint32_t frees, uint64_t bytes, const Allowance &allowance) {
    const bool can_grow = allowance.slack > 0 && allowance.claimed <= most_unasked(allowance);
    const bool is_awaited = allowance.limit > 0 && bytes >= allowance.limit / part_held_pending;
    return frees >= frees_an_event || is_awaited ||
           (bytes >= std::max(least_an_event, allowance.claimed / 2) &&
            (!can_grow || (frees > 0 && frees >= frees_a_batch(bytes / frees))));
}

bool may_grow_unasked(uint64_t bytes, const Allowance &allowance) {
    const uint64_t most = most_unasked(allowance);
    return allowance.slack > 0 && allowance.pending > 0 &&
           allowance.pending / (batches_in_turn * frees_a_batch(bytes)) < bytes &&
           allowance.claimed <= most && bytes <= most - allowance.claimed;
}

bool is_worth_a_question(const Allowance &allowance) {
    return allowance.pending >= pending_unasked;
}

uint64_t bytes_ahead(const Allowance &allowance) {
    return is_worth_a_question(allowance) ? allowance.pending / part_pending_ahead : 0;
}

bool is_worth_a_wait(uint64_t used, const Allowance &allowance) {
    return used >= allowance.limit / part_held_small &&
           allowance.pending >=
               std::max(used / part_used_pending, allowance.limit / part_held_pending);
}

} // namespace emm::pool

// Checks of every segment's invariants.
#include "heap.h"

#include <algorithm>
#include <cstdio>

namespace emm::pool {
namespace {

std::string at(const Block &block) {
    char text[64];
    snprintf(text, sizeof text,
             "block 0x%llx + 0x%llx: ", static_cast<unsigned long long>(block.begin),
             static_cast<unsigned long long>(block.size));
    return text;
}

} // namespace

std::string Heap::fault_of_free(const Block &block) const {
    const FreePool &pool = *block.pool;
    if (block.dirty() != (pool.order != Order::anyone)) {
        return "its dirt and its pool disagree";
    }
    if (block.dirty() != block.pending.linked) {
        return "it is dirty and not pending, or the other way round";
    }
    if (block.dirty_begin > block.dirty_end ||
        (block.dirty() && (block.dirty_begin < block.begin || block.dirty_end > block.end()))) {
        return "its dirty part is not within it";
    }
    if (block.loan.size() != 0 || block.uses || block.host || block.slab || block.capture) {
        return "something is left of what it was while it was taken";
    }
    const auto counted = [&](uint64_t size) { return counts(block, size) ? size : 0; };
    const uint64_t low = counted(block.dirty() ? block.dirty_begin - block.begin : block.size);
    const uint64_t high = counted(block.dirty() ? block.end() - block.dirty_end : 0);
    if (block.low.linked() != (low > 0) || (low > 0 && block.low.size != low) ||
        block.high.linked() != (high > 0) || (high > 0 && block.high.size != high)) {
        return "the index of complete memory disagrees with it";
    }
    const bool serves = pool.order == Order::stream || pool.order == Order::capture;
    const bool own = serves && counts(block, block.size);
    if (block.own.linked() != own || (own && block.own.size != block.size)) {
        return "its pool's index disagrees with it";
    }
    return "";
}

std::string Heap::fault() const {
    for (const Segment *segment = segments_.first(); segment; segment = segments_.next(*segment)) {
        std::string found = fault_of(*segment);
        if (!found.empty()) {
            return found;
        }
    }
    return "";
}

// A range holds only former places: idle ones, or a vacated one.
std::string Heap::fault_of_range(const Block &block) const {
    if (block.begin % segment_granule != 0 || block.size % segment_granule != 0) {
        return "it is not made of whole pages";
    }
    const bool vacated = block.state == State::vacated;
    if (vacated && block.dirty() != block.pending.linked) {
        return "a vacated place is dirty and not pending, or the other way round";
    }
    for (uint64_t address = block.begin; address < block.end();) {
        const Piece piece = block.segment->pieces.at(address);
        if (piece && (piece.address != address || piece.end() > block.end())) {
            return "a place is not within it";
        }
        const bool in_list =
            std::find(idle_places_.begin(), idle_places_.end(), address) != idle_places_.end();
        if (piece && !vacated && (piece.role != Role::idle || !in_list)) {
            return "an unmapped range has more behind it than idle places";
        }
        if (vacated && (!piece || piece.bytes != block.size || piece.role == Role::idle)) {
            return "a vacated place is no piece's";
        }
        const std::string found = piece.role != Role::owner ? fault_of_places(piece) : "";
        if (!found.empty()) {
            return found;
        }
        address = piece ? piece.end() : address + page_bytes;
    }
    return "";
}

std::string Heap::fault_of_places(const Piece &piece) const {
    unsigned owners = 0, ends = piece.other <= piece.address;
    for (uint64_t at = piece.other; at != 0 && at != piece.address; at = next_place(at)) {
        const Piece place = piece_at(at);
        if (place.handle != piece.handle || place.bytes != piece.bytes || place.other == 0) {
            return "the places of a piece disagree";
        }
        owners += place.role == Role::owner;
        ends += place.other <= at;
    }
    return owners == 1 && ends == 1
               ? ""
               : "a piece has no owner, or several, or its places are not in order";
}

std::string Heap::fault_of(const Segment &segment) const {
    uint64_t expected = segment.base;
    const Block *left = nullptr;
    for (const Block *block = segment.first; block; left = block, block = block->right) {
        if (block->begin != expected || block->size == 0 || block->left != left) {
            return at(*block) + "blocks overlap, leave a gap or are not linked both ways";
        }
        expected = block->end();
        const BlockOrSlot place = found_at(block->begin);
        const bool idle = block->state == State::free || block->state == State::unmapped;
        const bool is_slab = block->state == State::slab;
        if (place.block != (idle || is_slab ? nullptr : block) ||
            place.slot != (is_slab ? block->slab->slots : nullptr)) {
            return at(*block) + "its address leads elsewhere";
        }
        if (!is_slab && block->size > granule &&
            (found_at(block->begin + granule) || found_at(block->end() - granule))) {
            return at(*block) + "another seems to begin within it";
        }
        if (left && can_merge(*left, *block)) {
            return at(*block) + "it and its left neighbour should be one";
        }
        if (segment.paged() && block->state == State::free &&
            (!segment.pieces.at(block->begin) || !segment.pieces.at(block->end() - 1))) {
            return at(*block) + "free, and a part has no memory behind it";
        }
        const std::string found =
            block->state == State::free ? fault_of_free(*block)
            : block->state == State::unmapped || block->state == State::vacated
                ? fault_of_range(*block)
                : "";
        if (!found.empty()) {
            return at(*block) + found;
        }
    }
    return expected == segment.end() ? "" : "the blocks of a segment do not reach its end";
}

} // namespace emm::pool

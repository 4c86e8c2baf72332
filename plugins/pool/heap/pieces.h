// Physical memory behind a range of addresses: pieces of one or more pages, each with the driver's
// handle. A structure only: mapping and unmapping are the manager's.
#pragma once

#include "host_pages.h"

#include <cstdint>

namespace emm::pool {

// The size and alignment of every piece is a multiple of this.
constexpr uint64_t page_bytes = 2ull << 20;

// The purpose of one of a piece's places.
enum class Role : uint8_t {
    owner,  // its memory, in use or free
    former, // work that may still use it: a vacated block
    idle,   // only a mapping, for the piece's return: part of an unmapped range
    ending  // a mapping that the driver is being asked to end
};

struct Piece {
    uint64_t address = 0;
    uint64_t bytes = 0;   // 0: there is none
    uint64_t handle = 0;  // 0: its pool is paused, and nothing is mapped
    uint64_t other = 0;   // the next of its places, in a ring by address; 0: it has one place
    bool spilled = false; // host memory
    Role role = Role::owner;

    uint64_t end() const { return address + bytes; }
    explicit operator bool() const { return bytes != 0; }
};

struct Block;

// A piece that lies in free memory as a whole.
struct IdlePiece {
    Piece piece;
    uint64_t around = 0;    // bytes of the free memory around the piece
    Block *block = nullptr; // that memory, for the heap
    bool pending = false;   // work may still use it at this address
};

class Pieces {
public:
    Pieces() = default;
    Pieces(uint64_t base, uint64_t bytes, bool spilled = false)
        : base_(base), spilled_(spilled), pages_(bytes / page_bytes) {}

    bool has_range() const { return pages_.size() > 0; }
    bool spilled() const { return spilled_; } // all of them, or none
    void add(const Piece &piece);             // where no piece is
    void remove(const Piece &piece);
    // Joins neighbours that have no handle and lie within [begin, end), up to `most` bytes.
    void join_paused(uint64_t begin, uint64_t end, uint64_t most);
    void set_other(uint64_t address, uint64_t other);   // of the piece that begins there
    void set_handle(uint64_t address, uint64_t handle); // the same
    void set_role(uint64_t address, Role role);         // the same

    Piece at(uint64_t address) const; // the piece that holds the byte at `address`
    // The first piece that begins at or behind `from` and ends at or before `end`.
    Piece first_within(uint64_t from, uint64_t end) const;
    // Visits every piece, in the order of addresses; the function may remove it.
    template <class Function> void each(Function function) const {
        uint64_t next = 0;
        for (uint64_t i = 0; i < pages_.size(); i = next) {
            const bool begins = pages_[i].extent > 0;
            next = i + (begins ? uint64_t(pages_[i].extent) : 1);
            if (begins) {
                function(piece_from(i));
            }
        }
    }

private:
    struct Page {
        uint64_t handle, other;
        // For a piece's first page: its pages; for others: minus the distance to the first.
        int64_t extent;
        Role role; // of a piece's first page
    };
    uint64_t number(uint64_t address) const { return (address - base_) / page_bytes; }
    Piece piece_from(uint64_t first) const {
        return {base_ + first * page_bytes,
                uint64_t(pages_[first].extent) * page_bytes,
                pages_[first].handle,
                pages_[first].other,
                spilled_,
                pages_[first].role};
    }

    uint64_t base_ = 0;
    bool spilled_ = false;
    HostPages<Page> pages_;
};

// Takes a place out of its piece's ring. `pieces_of` returns the Pieces of the segment that
// contains an address. If one place is left, its `other` is 0.
template <class PiecesOf> void leave_ring(uint64_t place, PiecesOf pieces_of) {
    const auto other = [&](uint64_t at) { return pieces_of(at).at(at).other; };
    const uint64_t next = other(place);
    uint64_t before = next;
    while (next != 0 && other(before) != place) {
        before = other(before);
    }
    if (next != 0) {
        pieces_of(before).set_other(before, before == next ? 0 : next);
    }
}

} // namespace emm::pool

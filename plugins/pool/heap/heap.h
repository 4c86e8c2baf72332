// Blocks in segments: best fit, splitting, and immediate coalescing. Each free byte knows which
// work it waits for. Calls no driver; the pool's lock protects it. ALGORITHM.md explains the
// structure.
#pragma once

#include "block_or_slot.h"
#include "free_pool.h"
#include "page_map.h"
#include "pieces.h"
#include "tag_clock.h"

#include <string>
#include <vector>

namespace emm::pool {

bool can_merge(const Block &left, const Block &right);

class Heap {
public:
    // `common` is the pool of complete memory.
    Heap(FreePool &common, const TagClock &clock) : anyone(common), clock_(clock) {}

    // --- blocks ---
    // The tightest block that `pool` may use at once, cut to `size`; NULL if there is none.
    // reserve_record() must have succeeded since the last one.
    // A segment that is one free block, or memory that has pages, is left alone if it has more
    // than `most` bytes.
    Block *take(FreePool &pool, uint64_t size, Zone zone = Zone::large, uint64_t most = UINT64_MAX);
    // Blocks of the large zone up to `small_limit` stay out of its indexes, because requests for so
    // little hardly ever go there. A request that must have them sorts them in.
    void set_remnants_apart() { remnants_apart_ = true; } // before there is any memory
    void sort_remnants_in();
    // A whole dedicated segment that is not much larger than `size`.
    Block *take_dedicated(FreePool &pool, uint64_t size);
    void reserve_record() { records_.reserve(2); }
    void reserve_records(size_t count) { records_.reserve(count); }
    // Takes a reserved record, for a split that must not fail later; gives back one that was not
    // needed.
    Block *take_record() { return records_.take(); }
    void give_record(Block *record) { records_.give(record); }

    // The next larger block of `pool`, a stream's, that others could have after waiting for that
    // stream.
    static const SizeNode *offered_after(const FreePool &pool, const SizeNode &position, Zone zone);
    Block *take_offered(Block &block, uint64_t size);

    // Frees a block, which is no longer indexed anywhere, into `pool`.
    void give(Block &block, FreePool &pool) { give(block, pool, now()); }

    // The same for memory whose last use is older; `tag` is not below that of any earlier free.
    void give(Block &block, FreePool &pool, uint64_t tag);

    // Memory that `pool` freed with tags up to `tag` is complete.
    void complete(FreePool &pool, uint64_t tag);

    // --- segments ---
    void prepare(Segment &segment);            // throws std::bad_alloc
    void add(Segment &segment);                // as one complete block
    void remove(Segment &segment);             // the segment is whole
    List<Segment, &Segment::all> forget_all(); // the caller must free the returned segments
    Segment *first_whole() const { return whole_.first(); }
    Segment *next_whole(const Segment &segment) const { return whole_.next(segment); }
    Segment *first_segment() const { return segments_.first(); }
    Segment *next_segment(const Segment &segment) const { return segments_.next(segment); }
    Segment &segment_at(uint64_t address) const { return *map_.find(address); } // needs no lock
    bool is_mapped(uint64_t begin, uint64_t end) const; // memory is behind each of these addresses

    // --- pages: heap_pages.cpp ---
    struct Room {
        Block *range = nullptr; // unmapped
        uint64_t missing = 0;   // bytes, in whole pages
        bool at_its_end = false;
        const Block *beside = nullptr; // the free block that the new memory joins, if any

        uint64_t begin(uint64_t bytes) const; // where to put that many bytes
    };
    // The place where memory would make a block of this size together with free memory beside it.
    Room room_for(const FreePool &pool, uint64_t bytes, Zone zone) const;
    Room room_alone(uint64_t bytes, Zone zone) const; // without free memory beside it
    void add_addresses(Segment &segment);             // as one unmapped range
    // A taken block has lost its memory: its addresses take no host memory any more.
    void make_unmapped(Block &block);
    // Takes addresses, including the parts of idle places beyond them, as a block.
    Block *take_unmapped(uint64_t begin, uint64_t end);
    // A free pool whose memory with tags up to `tag` the asking stream may use at once.
    struct Ordered {
        const FreePool *pool;
        uint64_t tag;
    };
    // Pieces that lie in complete free memory, except in the block `spared`; of at most `parts`
    // parts, the smallest first. Then pieces of the pools in `ordered` that work may still use.
    // Host memory if `spilled`, else device memory. Throws std::bad_alloc.
    std::vector<IdlePiece> idle_pieces(const Block *spared, size_t parts,
                                       const std::vector<Ordered> &ordered = {},
                                       bool spilled = false) const;
    // Takes pieces that idle_pieces() has found, ordered by address. Each becomes a block of its
    // own, in the same order. A pending piece is vacated. It goes to the stream of `pool`, and
    // completes with the next event of `pool`. Call reserve_records() first, for two records a
    // piece. Throws std::bad_alloc, before any piece is taken.
    std::vector<Block *> take_pieces(const std::vector<IdlePiece> &chosen, FreePool &pool);

    // --- further places: heap_places.cpp ---
    void set_most_places(uint64_t most) { most_places_ = most; }
    // While it lives, that many places may become idle without host memory. The pool's lock is held
    // when it begins and ends.
    class Promise {
    public:
        Promise(Heap &heap, size_t count); // throws std::bad_alloc
        ~Promise() { heap_.promised_places_ -= count_; }
        Promise(const Promise &) = delete;
        Promise &operator=(const Promise &) = delete;

    private:
        Heap &heap_;
        const size_t count_;
    };
    // Gives a taken piece one more place, which owns its memory from now on. The block is the
    // former place: vacated, or, if complete, part of an unmapped range.
    void link(Block &block, uint64_t new_place);
    void reoccupy(Block &block); // it got none: its memory is free at its old place
    // Idle pieces return to idle places of theirs, which lie side by side in that order. They
    // become one free block; if work may use any of them, the block is `pool`'s. The driver is not
    // asked. Throws std::bad_alloc, before anything is taken.
    void go_back(const std::vector<IdlePiece> &pieces, uint64_t place, FreePool &pool);
    // Idle places, the oldest first.
    const std::vector<uint64_t> &idle_places() const { return idle_places_; }
    size_t further_places() const { return idle_places_.size() + former_places_; }
    Piece piece_at(uint64_t address) const { return map_.find(address)->pieces.at(address); }
    // Further places of a piece: all of them; or those that must end before it gets one more.
    void add_further_places(const Piece &piece, std::vector<uint64_t> &ret_places) const;
    void add_surplus_place(const Piece &piece, std::vector<uint64_t> &ret_places) const;
    // Begins to end a place in the driver. Returns its block, unless the place is part of a taken
    // block. Needs two records. Then the mapping has ended, or has stayed.
    Block *begin_to_end(uint64_t place, bool within);
    void end_place(uint64_t place);
    void keep_place(uint64_t place);
    Block *split(Block &block, uint64_t front) { return split(block, front, *records_.take()); }
    Block *split(Block &block, uint64_t front, Block &record); // `record` comes from take_record

    // --- addresses ---
    // The block or slot that begins there, live or not; needs no lock.
    BlockOrSlot found_at(uint64_t address) const;
    BlockOrSlot starting_at(uint64_t address) const; // the taken one that begins there
    BlockOrSlot around(uint64_t address) const;      // the live allocation that holds the address
    void set_slab(Block &block, Slab *slab);         // NULL: it becomes a block again

    uint64_t largest_free() const; // of complete memory
    // The largest piece of indexed memory: complete, or `pool`'s own. Reads no block.
    uint64_t largest_complete() const { return largest_node(complete_); }
    static uint64_t largest_block_of(const FreePool &pool) { return largest_node(pool.own); }
    uint64_t bytes_in(Zone zone) const { return zone_bytes_[unsigned(zone)]; }
    // Free, except quarantine.
    uint64_t idle_in(Zone zone) const { return idle_bytes_[unsigned(zone)]; }
    uint64_t whole_bytes() const { return whole_bytes_; }
    uint64_t quarantined() const { return quarantined_; } // bytes that no request may use yet

    // The first broken invariant, as text; empty if all hold.
    std::string fault() const;

    uint64_t now() const { return clock_.now(); } // the tag of a free

    FreePool &anyone;

private:
    static constexpr uintptr_t slot_bit = 1;

    static uint64_t largest_node(const SizeTree (&trees)[zones]);
    SizeTree &complete_like(const Block &block) { return complete_[unsigned(block.zone)]; }
    void index(Block &block);
    bool counts(const Block &block, uint64_t size) const;
    void insert(SizeTree &tree, SizeNode &node, uint64_t size, uint64_t address) const;
    void remove(SizeTree &tree, SizeNode &node, uint64_t size) const;
    template <class Function> void each_free(Function function);
    void unindex(Block &block);
    Block *cut(Block &block, uint64_t size, bool from_the_end);
    Block *cut_complete(const SizeNode &part, uint64_t size);
    Block *coalesce(Block *block);
    Block *merge(Block &left, Block &right);
    void index_remainder(Block &block);
    void own(Block &block);
    void forget_start(Block &block);
    BlockOrSlot last_before(const Segment &segment, uint64_t address) const;
    BlockOrSlot covering(const Segment &segment, uint64_t mark, uint64_t address) const;
    Room room_in(Block &range, const FreePool &pool, uint64_t bytes) const;
    const SizeNode *next_paged_part(const SizeNode &position, bool spilled) const;
    // The next place of the piece that begins at `address`; or the address itself.
    uint64_t next_place(uint64_t address) const;
    Block *range_at(uint64_t address) const;    // the unmapped range that holds the address
    void add_range(Block &block);               // of a taken block that had no memory before
    void make_idle_place(Block &block);         // the complete former place of a piece
    void make_idle_once_complete(Block &block); // the same, once it is complete
    void forget_idle(uint64_t place);
    void join_ring(uint64_t member, uint64_t place);
    void leave_ring(uint64_t place);
    bool may_leave(const Piece &piece, bool pending) const;
    void add_pending_pieces(const Block *spared, size_t parts, const std::vector<Ordered> &ordered,
                            std::vector<IdlePiece> &found) const;
    void vacate(Block &block, FreePool &pool);
    Block *split_free(Block &block, uint64_t bytes);
    std::string fault_of_places(const Piece &piece) const;
    std::string fault_of_range(const Block &block) const;
    std::string fault_of(const Segment &segment) const;
    std::string fault_of_free(const Block &block) const;

    const TagClock &clock_;
    PageMap map_;
    BlockStore records_;
    List<Segment, &Segment::all> segments_;
    List<Segment, &Segment::whole> whole_;
    SizeTree complete_[zones]; // complete parts of all blocks
    SizeTree unmapped_[zones];
    SizeTree ranges_;          // all unmapped ranges, by their end
    size_t former_places_ = 0; // vacated places that are not idle yet
    std::vector<uint64_t> idle_places_;
    size_t promised_places_ = 0;
    uint64_t most_places_ = 2; // that a piece may have
    uint64_t zone_bytes_[zones] = {};
    uint64_t idle_bytes_[zones] = {};
    uint64_t whole_bytes_ = 0;
    uint64_t quarantined_ = 0;
    bool remnants_apart_ = false;
};

// Always inlined, so that a free that finds its block here needs no stack frame.
[[gnu::always_inline]] inline BlockOrSlot Heap::found_at(uint64_t address) const {
    const Page *page = map_.page(address);
    if (!page || address % granule != 0) {
        return {};
    }
    if (Block *block = page->start_at(address)) {
        return {block, nullptr};
    }
    const uintptr_t owner = page->owner(address);
    if (owner & slot_bit) {
        return {nullptr, reinterpret_cast<Slot *>(owner & ~slot_bit)};
    }
    return {reinterpret_cast<Block *>(owner), nullptr};
}

} // namespace emm::pool

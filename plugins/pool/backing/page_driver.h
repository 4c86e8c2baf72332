// What growth by pages asks of the driver: addresses, and pieces made, mapped and given back. No
// lock is held.
#pragma once

#include "cuda/served_context.h"
#include "heap/heap.h"

#include <mutex>
#include <span>
#include <vector>

namespace emm::pool {

// Pieces that the driver does not take back: held still, and mapped nowhere. Without host memory
// for the list they only count.
struct Refused {
    std::vector<Piece> pieces;
    uint64_t bytes = 0;
    uint64_t spilled = 0; // of those

    void add(const Piece &piece) noexcept;
};

class PageDriver {
public:
    // `wants_cards`: whether a network card may reach pieces by itself, where the device can.
    // `spills`: whether host memory will be asked for.
    PageDriver(const ServedContext &context, bool wants_cards, bool spills)
        : context_(context), shares_(can_share(context)),
          reaches_cards_(wants_cards && can_reach_cards(context)),
          host_node_(spills ? nearest_node(context) : 0) {}

    // Whether the driver and the device have virtual memory management.
    static bool is_served(const ServedContext &context);
    // Whether other processes may have pieces: the device and the host must serve that.
    static bool can_share(const ServedContext &context);
    // Whether a network card may have pieces by itself (GPUDirect RDMA).
    static bool can_reach_cards(const ServedContext &context);
    bool shares() const { return shares_; } // pieces are made so
    // Whether the device uses host memory behind addresses, as far as the driver tells.
    static bool can_spill(const ServedContext &context);
    static int nearest_node(const ServedContext &context); // of the host, to the device

    CUdeviceptr reserve_addresses(uint64_t bytes, CUresult &result) const;
    void free_addresses(CUdeviceptr base, uint64_t bytes) const;

    // All of them or none: pieces of these sizes, whose addresses are not known yet. There is room
    // for them in the vector.
    CUresult create(const std::vector<uint64_t> &sizes, std::vector<Piece> &ret_pieces,
                    Refused &refused, bool spilled = false) const;
    void release(const Piece &piece, Refused &refused) const noexcept;
    // Ends the first `count` mappings, which are ordered by address. How many have ended: they come
    // first, then those that the driver refused one by one. `result` is the first refusal, if any.
    size_t unmap(std::vector<Piece> &pieces, size_t count, const Heap &heap,
                 CUresult &result) const;
    // Puts pieces behind a block, side by side from its beginning. How many are in place: all, or
    // the first `kept` if it has to stop. Of the others those that have no other place are given
    // back to the driver.
    size_t map(Block &block, std::vector<Piece> &pieces, size_t kept,
               const std::vector<CUmemAccessDesc> &access, CUresult &result,
               Refused &refused) const;

    // The pieces and the addresses of a segment that the program uses no more, nor the device; it
    // is one of `all`, which have all places of its pieces. Returns the bytes of the pieces that
    // are mapped nowhere since. Places that the driver refuses to unmap stay in the segment.
    using Segments = List<Segment, &Segment::all>;
    uint64_t give_back(Segment &segment, const Segments &all, Refused &refused) const;

    // --- pause: page_driver_pause.cpp ---
    // What is behind these pieces goes back; which of them have gone. There is room in the vector.
    void take_away(std::span<const Piece> pieces, const Heap &heap, std::vector<Piece> &ret_gone,
                   Refused &refused) const;
    // Whether the driver has that much, which goes back at once.
    CUresult try_as_one(uint64_t bytes, Refused &refused) const;
    // New memory, mapped where they were. After a failure withdraw() takes the pieces that have a
    // handle, of which so many are mapped.
    CUresult put_behind(std::span<Piece> pieces, const std::vector<CUmemAccessDesc> &access,
                        const Heap &heap, size_t &ret_mapped) const;
    // The first `mapped` of them are mapped no more, unless copies still use them; all go back.
    void withdraw(std::span<const Piece> pieces, size_t mapped, bool in_use, const Heap &heap,
                  Refused &refused) const noexcept;

    CUresult await_device() const; // for all work of the context: cuMemUnmap waits for none

private:
    CUmemAllocationProp properties(bool spilled) const;
    uint64_t give_back(Segment &segment, uint64_t begin, uint64_t end, const Segments &all,
                       Refused &refused) const;
    CUresult map_piece(uint64_t at, const Piece &piece) const;
    static size_t end_of_run(std::span<const Piece> pieces, size_t first, const Heap &heap);

    // Mappings that the driver refused to end. They go as a whole, before something else is mapped
    // where they lie, or with the addresses.
    void keep_stuck(Segment &segment, const Piece &mapping) const noexcept;
    bool end_stuck(uint64_t begin, uint64_t end) const noexcept; // whether none is left there

    const ServedContext &context_;
    const Driver &driver_ = context_.driver;
    mutable std::mutex stuck_mutex_; // held while they end, so that no thread misses one
    mutable std::vector<Piece> stuck_;
    const bool shares_, reaches_cards_;
    const int host_node_;
};

} // namespace emm::pool

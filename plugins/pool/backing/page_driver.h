// The driver calls of growth by pages: addresses, and pieces made, mapped and given back. No lock
// is held.
#pragma once

#include "cuda/served_context.h"
#include "heap/heap.h"

#include <mutex>
#include <shared_mutex>
#include <span>
#include <vector>

namespace emm::pool {

// Pieces that the driver refuses to take back: still held, and mapped nowhere. Without host memory
// for the list they are only counted.
struct Refused {
    std::vector<Piece> pieces;
    uint64_t bytes = 0;
    uint64_t spilled = 0; // of `bytes`

    void add(const Piece &piece) noexcept;
};

class PageDriver {
public:
    // `wants_cards`: whether a network card should reach pieces directly, if the device supports
    // that. `spills`: whether host memory will be needed.
    PageDriver(const ServedContext &context, bool wants_cards, bool spills)
        : context_(context), shares_(can_share(context)),
          reaches_cards_(wants_cards && can_reach_cards(context)),
          host_node_(spills ? nearest_node(context) : 0) {}

    // Whether the driver and the device have virtual memory management.
    static bool is_served(const ServedContext &context);
    // Whether other processes may have pieces: both the device and the host must support that.
    static bool can_share(const ServedContext &context);
    // Whether a network card can reach pieces directly (GPUDirect RDMA).
    static bool can_reach_cards(const ServedContext &context);
    bool shares() const { return shares_; } // pieces can be shared
    // Whether the device can use host memory behind addresses, as far as the driver tells.
    static bool can_spill(const ServedContext &context);
    static int nearest_node(const ServedContext &context); // of the host's nodes, to the device

    CUdeviceptr reserve_addresses(uint64_t bytes, CUresult &result) const;
    void free_addresses(CUdeviceptr base, uint64_t bytes) const;

    // Tries whether the driver has that much memory, if it does not say so itself.
    CUresult try_room(uint64_t bytes, Refused &refused) const;
    // Makes pieces of these sizes, all or none; their addresses are not known yet. The vector has
    // room for them.
    CUresult create(const std::vector<uint64_t> &sizes, std::vector<Piece> &ret_pieces,
                    Refused &refused, bool spilled = false) const;
    void release(const Piece &piece, Refused &refused) const noexcept;
    // Ends the first `count` mappings, which are ordered by address. Returns how many have ended:
    // those come first, then those that the driver refused one by one. `result` is the first
    // refusal, if any.
    size_t unmap(std::vector<Piece> &pieces, size_t count, const Heap &heap,
                 CUresult &result) const;
    // Maps pieces behind a block, side by side from its beginning. Returns how many are in place:
    // all, or after a failure at least the first `kept`. The others are given back to the driver,
    // unless they have another place.
    size_t map(Block &block, std::vector<Piece> &pieces, size_t kept,
               const std::vector<CUmemAccessDesc> &access, CUresult &result,
               Refused &refused) const;

    // Gives back the pieces and addresses of a segment that neither the program nor the device uses
    // any more. The segment is one of `all`, which have all places of its pieces. Returns the bytes
    // of pieces that are now mapped nowhere. Places that the driver refuses to unmap stay in the
    // segment.
    using Segments = List<Segment, &Segment::all>;
    uint64_t give_back(Segment &segment, const Segments &all, Refused &refused) const;

    // --- pause: page_driver_pause.cpp ---
    // Gives back the memory behind these pieces. `ret_gone`, which has room for all of them, gets
    // those that have gone.
    void take_away(std::span<const Piece> pieces, const Heap &heap, std::vector<Piece> &ret_gone,
                   Refused &refused) const;
    // Makes new memory for pieces. After a failure of this or of the mapping, the caller must call
    // withdraw() for the pieces that have a handle.
    CUresult make_again(std::span<Piece> pieces) const;
    // Maps pieces at their places. `mapped` grows by the number that are mapped.
    CUresult map_again(std::span<const Piece> pieces, const std::vector<CUmemAccessDesc> &access,
                       const Heap &heap, size_t &mapped) const;
    // Unmaps the first `mapped` pieces, unless copies still use them, and gives all of them back.
    void withdraw(std::span<const Piece> pieces, size_t mapped, bool in_use, const Heap &heap,
                  Refused &refused) const noexcept;

private:
    CUmemAllocationProp properties(bool spilled) const;
    uint64_t give_back(Segment &segment, uint64_t begin, uint64_t end, const Segments &all,
                       Refused &refused) const;
    CUresult map_piece(uint64_t at, const Piece &piece) const;
    std::shared_lock<std::shared_mutex> begin_mapping() const;
    CUresult end_mappings(uint64_t begin, uint64_t end) const;
    static size_t end_of_run(std::span<const Piece> pieces, size_t first, const Heap &heap);

    // Mappings that the driver refused to end. They end as a whole, before anything else is mapped
    // there, or with the addresses.
    struct Stuck {
        Piece mapping;
        bool has_access = false; // false: it also ends before any other mapping does
    };
    void keep_stuck(Segment &segment, const Piece &mapping, bool has_access) const noexcept;
    template <class Which> bool end_stuck_if(Which which) const noexcept;
    bool end_stuck(uint64_t begin, uint64_t end) const noexcept; // whether none is left there

    const ServedContext &context_;
    const Driver &driver_ = context_.driver;
    // Driver 580 may map a handle no more, and answer CUDA_ERROR_UNKNOWN, once the oldest mapping
    // of the handle has ended while another one had access and a third had none yet. So a thread
    // that maps shares this mutex until the mappings have access, and a thread that ends mappings
    // has it alone. Both take turns, or a thread that ends mappings might wait for long.
    mutable std::shared_mutex mapping_mutex_;
    mutable std::mutex turn_mutex_;
    mutable std::mutex stuck_mutex_; // held while mappings end, so that no thread misses one
    mutable std::vector<Stuck> stuck_;
    const bool shares_, reaches_cards_;
    const int host_node_;
};

} // namespace emm::pool

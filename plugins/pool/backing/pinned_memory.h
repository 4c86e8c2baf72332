// Pinned host memory: pooled, because pinning costs the driver a millisecond. Freed memory is
// handed out again once the CPU has seen its work complete: the program may write at once.
//
// It grows and gives back as a Backing does, but is no Backing. Host addresses are kept apart by
// flags, with a heap for each set of flags. A request names no stream, so it may have only complete
// memory, and never waits for a stream on the device. No part of the memory is shared with another
// process or opened to a peer.
//
//   pinned_memory.cpp  allocations and frees, and questions to the driver about them
//   pinned_growth.cpp  growing and giving back
//   pinned_caches.cpp  the blocks in magazines
//
// The pool's lock is held, except where said otherwise. Functions that take a Lock & may let go of
// it for a driver call; their callers look at everything anew afterwards.
#pragma once

#include "backing/host_node.h"
#include "backing/host_pool.h"
#include "backing/moves.h"
#include "backing/pinned_bound.h"
#include "cache/pinned_cache.h"
#include "cache/thread_caches.h"
#include "order/cross_context.h"

#include <memory>

namespace emm::pool {

class PinnedMemory final : public PinnedOwner {
public:
    PinnedMemory(PinnedBound &bound, const HostNode &node, StreamOrder &order,
                 CrossContext &cross_context, ThreadCaches &caches, Moves &moves,
                 const std::atomic<uint64_t> &serving)
        : context_(order.context()), bound_(bound), node_(node), order_(order),
          cross_context_(cross_context), caches_(caches), moves_(moves), serving_(serving) {}
    ~PinnedMemory();
    PinnedMemory(const PinnedMemory &) = delete;
    PinnedMemory &operator=(const PinnedMemory &) = delete;

    // --- allocations ---
    bool serves(uint32_t flags) const;
    // No lock is held. Takes a block from the calling thread's magazine, or returns NULL; gives one
    // back to it, or returns false.
    Block *take_from_magazine(uint32_t flags, size_t size) const;
    bool give_to_magazine(uint32_t flags, uint64_t host, size_t size, emm_stream stream) const;
    // Takes a block from any other place. NULL: `result` says why.
    Block *take(Lock &lock, uint32_t flags, size_t size, CUresult &result);
    static emm_deviceptr device_address(const Block &block); // 0: not mapped
    // The allocation that begins at `host`, if any.
    BlockOrSlot allocation_at(uint32_t flags, uint64_t host) const;
    BlockOrSlot allocation_at(uint64_t host) const;

    // --- frees ---
    // The free pool for frees with no stream.
    StreamPool &unordered_pool(const Block &block);
    // Moves the calling thread's frees on the stream to the free pool whose work is asked about.
    void hand_over(emm_stream stream, StreamPool &pool);
    // Frees the allocation at `allocation`. Returns a stream that should get an event now, or NULL.
    StreamPool *free(BlockOrSlot allocation, StreamPool &stream_pool);
    // Keeps the block until the work on its stream, or on all streams, has been seen complete.
    void keep_until_complete(Block &block, StreamPool &stream_pool);
    // Memory that `stream_pool` freed with tags up to `tag` is complete.
    void complete(StreamPool &stream_pool, uint64_t tag);
    // Freed memory waits for further uses.
    void begin_wait(uint64_t bytes) { waiting_ += bytes; }
    void end_wait(uint64_t bytes) { waiting_ -= bytes; }
    void drain_pinned(Magazine &magazine) override;

    // --- memory as such ---
    // Gives idle memory back to the driver until no more than `keep` bytes are cached. Returns the
    // bytes given back.
    uint64_t release_idle(Lock &lock, uint64_t keep);
    List<Segment, &Segment::all> forget_all();             // forgets every allocation
    void give_back(List<Segment, &Segment::all> segments); // of forget_all(); no lock is held

    // --- counts ---
    uint64_t live() const; // bytes, as asked for
    // Whether memory freed with no stream waits for the next event on this context.
    bool any_waits_for_context() const { return !order_.unordered().pinned.empty(); }
    std::string fault() const; // the first broken invariant; empty if all hold

private:
    HostPool &pool_with(uint32_t flags);
    const HostPool *known(uint32_t flags) const;
    void begin_loan(Block &block, HostPool &pool, size_t size);
    Block *acquire(HostPool &pool, uint64_t size, CUresult &result);
    Block *reuse(Lock &lock, HostPool &pool, uint64_t size);
    void ask(Lock &lock, HostPool &pool, uint64_t size);

    // --- pinned_growth.cpp
    Block *grow(Lock &lock, HostPool &pool, uint64_t size, CUresult &result);
    Block *reclaim(Lock &lock, HostPool &pool, uint64_t size, CUresult &result);
    CUresult add(Lock &lock, HostPool &pool, uint64_t bytes);
    std::unique_ptr<Segment> allocate(HostPool &pool, uint64_t bytes, CUresult &result);
    void uncount(uint64_t bytes); // if the driver has not given them, or has them back
    void release(Segment &segment);
    void return_refused(Lock &lock);
    uint64_t cached() const;

    // --- pinned_caches.cpp
    Magazine *magazine_for(emm_stream stream, StreamPool &pool);
    void refill(HostPool &pool, size_t size);
    void empty_bin(PinnedCache::Bin &bin);
    void hand_over(Magazine &magazine);
    void hand_over_own_magazines();
    bool fetch_from_threads();

    static constexpr unsigned kinds = 8; // sets of flags

    ServedContext &context_;
    const Driver &driver_ = context_.driver;
    PinnedBound &bound_;
    const HostNode &node_;
    StreamOrder &order_;
    CrossContext &cross_context_;
    ThreadCaches &caches_;
    Moves &moves_;
    const std::atomic<uint64_t> &serving_;
    std::atomic<HostPool *> known_[kinds] = {}; // by flags, readable without the lock
    std::unique_ptr<HostPool> pools_[kinds];    // the same
    // Refused by the driver: still held, and tried again.
    List<Segment, &Segment::all> refused_;
    // Including bytes that are being asked from the driver.
    uint64_t reserved_ = 0;
    uint64_t live_ = 0;    // as asked for
    uint64_t taken_ = 0;   // as taken from a pool
    uint64_t waiting_ = 0; // freed, and not complete
};

} // namespace emm::pool

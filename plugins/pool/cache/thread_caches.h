// Free memory in the hands of threads: their magazines, the depots between them, and the quarantine
// of unordered frees.
//
//   thread_caches.cpp  making magazines, and figures about all of them
//   refilling.cpp      filling and emptying them
//   block_refilling.cpp  the same for blocks
//   closing.cpp        keeping their owners out, for a while or permanently
//   check.cpp          the invariants
//
// The pool's lock is held, except where said otherwise. Another thread's magazine is closed while
// the pool looks into it.
#pragma once

#include "block_depot.h"
#include "depot.h"
#include "heap/device_memory.h"
#include "magazine.h"
#include "order/stream_order.h"
#include "thread.h"

#include <emm/plugin.h>

#include <atomic>
#include <string>
#include <unordered_map>

namespace emm::pool {

// The owner of the pinned memory in magazines.
class PinnedOwner {
public:
    // Takes all pinned memory out of the magazine, and adds the magazine's counts to the owner's.
    virtual void drain_pinned(Magazine &magazine) = 0;

protected:
    ~PinnedOwner() = default;
};

class ThreadCaches {
public:
    // `identity` is the manager's, and so is `serving`, or 0 once nothing is reused. `limit` is the
    // most that may ever be held; 0: no blocks are kept.
    ThreadCaches(StreamOrder &order, DeviceMemory &memory, PinnedOwner &pinned, uint64_t identity,
                 const std::atomic<uint64_t> &serving, uint64_t limit);
    ThreadCaches(const ThreadCaches &) = delete;
    ThreadCaches &operator=(const ThreadCaches &) = delete;

    // --- magazines ---
    // No lock is held. The owner's, in a call that did not get into its magazine at once: waits for
    // a thread that has closed it meanwhile, and opens it again if it was parked.
    bool enter(Magazine &magazine);
    // No lock is held. The magazine of an unregistered stream is found by its handle and proved by
    // its id.
    Magazine *find_unregistered(emm_stream stream) const;
    // The calling thread's magazine for the free pool, which `stream` leads to from now on; NULL if
    // it can have none.
    Magazine *own(emm_stream stream, StreamPool &pool) { return own(identity_, stream, pool); }
    // The one for a call on the slow path, once that is worth while; else NULL.
    Magazine *own_for(const Caller &caller, StreamPool &pool);
    // Visits magazines that may hold something. The others are parked: closed, until their owner's
    // next call.
    template <class Function> void each(Function function) const {
        Magazine *next = nullptr;
        for (Magazine *m = active_.first(); m; m = next) {
            next = active_.next(*m);
            function(*m);
        }
    }

    // Another `limit`: all magazines end, and are made anew.
    void set_limit(uint64_t limit);

    // --- filling and emptying ---
    // By a slow call of its owner: what the magazine counted becomes part of the pool's counts.
    void take_over(Magazine &magazine);
    void refill(Magazine &magazine, unsigned index);    // an empty bin
    void make_room(Magazine &magazine, unsigned index); // for one more freed slot of this class
    void unload_blocks(Magazine &magazine);
    // The magazine's unordered frees join those of other threads, and wait. False: there are none.
    bool hand_over_blocks(Magazine &magazine);
    // Whether so many blocks have been handed over that they are worth an event: once for each.
    bool takes_batch();
    // Whether a request of that size asks the driver about the waiting blocks: if the magazine
    // keeps such blocks, they are worth an event, and the last question found some.
    bool asks_about_blocks(const Magazine &magazine, uint64_t bytes);
    // Fetches blocks of a size that the magazine lacks. False: there are none; blocks kept from a
    // best fit have returned to the heap.
    bool refill_blocks(Magazine &magazine, uint64_t bytes);
    // Room for one more freed block of this size; false: the magazine does not keep it.
    bool make_room_for_block(Magazine &magazine, uint64_t bytes);
    // All work that may use unordered frees with tags up to this one is done.
    void complete_batches(uint64_t tag);
    void drain_own(); // empties the calling thread's magazines, and the depots
    bool drain_all(); // false: there was nothing
    // Unordered frees that still wait return to the heap without waiting.
    void give_up_waiting_blocks();
    void forget_quarantine();

    // From its making to its end a thread looks for whole blocks, and depots take no batches. It
    // has the lock at both times: an exception may have come while it had let go.
    class Search {
    public:
        Search(Lock &lock, ThreadCaches &caches) : lock_(lock), searches_(caches.totals_.searches) {
            searches_++;
        }
        ~Search() {
            if (!lock_.owns_lock()) {
                lock_.lock();
            }
            searches_--;
        }
        Search(const Search &) = delete;
        Search &operator=(const Search &) = delete;

    private:
        Lock &lock_;
        std::atomic<uint32_t> &searches_;
    };
    bool any_search() const { return totals_.searches > 0; }

    // --- closing ---
    // The owners are kept out until reopen(); hold the pool's lock until then.
    void shut() { shut(nullptr); }
    void reopen();
    // No thread that looked an address up before the last change to the map is still looking.
    void await_lookups();
    // Empties the magazines of this free pool, or of all if it is NULL, permanently. Their owners'
    // next call finds out, and may make another.
    void close(const StreamPool *pool);
    void retire_magazine(Magazine &magazine); // no lock is held: the thread that owns it ends
    // The program's log may run its code, so no lock is held, and no section of relaxed mode.
    void warn_of_refused_fence();

    // --- counts ---
    Counts &counts() const { return memory_.counts; }
    uint64_t idle_bytes() const;         // for their owners to take again
    uint64_t quarantined_bytes() const;  // not those of the block depot
    uint64_t largest_kept_block() const; // kept from the heap, to be taken at once
    uint64_t waiting_block_bytes() const { return block_depot_.waiting_bytes(); } // of that
    uint64_t live_bytes() const; // without the magazines' changes since their last refills
    uint64_t calls_served() const;
    void report(emm_stats &stats) const;
    void reset_peak();         // of live bytes
    std::string fault() const; // the first broken invariant; empty if all hold

private:
    // Tells the ways of unregistered streams from others in a thread's table.
    static constexpr uint64_t unregistered_bit = uint64_t(1) << 63;

    Magazine *own(uint64_t identity, emm_stream stream, StreamPool &pool);
    Magazine &make(Thread &thread, StreamPool &pool);
    void make_room_for_unregistered();
    static void widen(Bin &bin, unsigned index, uint32_t limit);
    void give_slots(const SlotAt *slots, uint32_t count, StreamPool &pool);
    void unload(Magazine &magazine, unsigned index, uint32_t count);
    void quarantine(Magazine &magazine, unsigned index);
    void clear(Depot &depot, StreamPool &pool);
    void clear_depots();
    bool keeps_complete_blocks() const;
    void add_counts(Magazine &magazine);
    void drain(Magazine &magazine);
    void drain_or_park(Magazine &magazine);
    void unpark(Magazine &magazine);
    void shut(const StreamPool *pool);
    void close(Magazine &magazine);

    StreamOrder &order_;
    DeviceMemory &memory_;
    PinnedOwner &pinned_;
    const uint64_t identity_;
    const std::atomic<uint64_t> &serving_;
    uint64_t limit_; // the most that may ever be held; 0: no blocks are kept
    List<Magazine, &Magazine::of_manager_> magazines_;
    List<Magazine, &Magazine::active_> active_;            // the rest of them is parked
    std::unordered_map<const StreamPool *, Depot> depots_; // while the free pool has magazines
    SpareBatches spares_;
    BatchQueue quarantine_; // slots freed unordered
    uint64_t quarantined_ = 0;
    BlockDepot block_depot_;   // blocks freed unordered
    uint32_t handed_over_ = 0; // blocks, since they were worth an event the last time
    uint64_t handed_over_bytes_ = 0;
    bool asked_ = false; // about blocks, and nothing has come to be complete since
    DepotTotals totals_;
    std::atomic<int> refused_fence_{0}; // the kernel's answer, until the program has been told
};

} // namespace emm::pool

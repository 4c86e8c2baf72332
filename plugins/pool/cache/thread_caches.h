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
    // `identity` is the manager's. `serving` has the same value, or 0 once nothing is reused.
    // `limit` is the most that may ever be held; 0: no blocks are kept.
    ThreadCaches(StreamOrder &order, DeviceMemory &memory, PinnedOwner &pinned, uint64_t identity,
                 const std::atomic<uint64_t> &serving, uint64_t limit);
    ThreadCaches(const ThreadCaches &) = delete;
    ThreadCaches &operator=(const ThreadCaches &) = delete;

    // --- magazines ---
    // Called by the magazine's owner with no lock held, if the owner did not get into the magazine
    // at once. Waits for a thread that has closed the magazine, and opens it again if it was
    // parked.
    bool enter(Magazine &magazine);
    // No lock is held. Finds the magazine of an unregistered stream by the stream's handle, and
    // checks the stream's id.
    Magazine *find_unregistered(emm_stream stream) const;
    // The calling thread's magazine for the free pool; NULL if the thread can have none. From now
    // on, calls on `stream` use this magazine.
    Magazine *own(emm_stream stream, StreamPool &pool) { return own(identity_, stream, pool); }
    // The same for a call on the slow path; NULL until the stream has had enough such calls.
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

    // Changes `limit`: all magazines end, and new ones are made.
    void set_limit(uint64_t limit);

    // --- filling and emptying ---
    // Called in a slow call of the magazine's owner: adds the magazine's counts to the pool's.
    void take_over(Magazine &magazine);
    void refill(Magazine &magazine, unsigned index);    // an empty bin
    void make_room(Magazine &magazine, unsigned index); // for one more freed slot of this class
    void unload_blocks(Magazine &magazine);
    // The magazine's unordered frees join those of other threads, and wait. False: there are none.
    bool hand_over_blocks(Magazine &magazine);
    // Whether enough blocks have been handed over to be worth an event. Says so once for each such
    // batch.
    bool takes_batch();
    // Whether a request of that size should ask the driver about the waiting blocks: the magazine
    // keeps blocks of that size, the waiting blocks are worth an event, and the last question found
    // complete ones.
    bool asks_about_blocks(const Magazine &magazine, uint64_t bytes);
    // Fetches blocks of a size that the magazine lacks. False: there are none. Blocks that were
    // kept out of a best fit are back in the heap then.
    bool refill_blocks(Magazine &magazine, uint64_t bytes);
    // Adds free blocks of a size that the magazine keeps for calls without a stream: at most
    // `most_bytes` of them, and as long as `take` finds any. False: none.
    template <class Take>
    bool add_blocks(Magazine &magazine, uint64_t bytes, uint64_t most_bytes, Take take) {
        UnorderedBlocks *const own = magazine.unordered_blocks_.get();
        UnorderedBlocks::Bin *const bin = own ? own->find(bytes) : nullptr;
        const uint64_t most = bin ? std::min<uint64_t>(own->most_of(bytes), most_bytes / bytes) : 0;
        uint32_t count = bin ? bin->count.get() : 0;
        for (Block *block; count < most && (block = take());) {
            bin->blocks[count++] = block;
            bin->count.set(count);
            memory_.counts.count_taken(bytes);
        }
        return count > 0;
    }
    // Makes room for one more freed block of this size. False: the magazine does not keep it.
    bool make_room_for_block(Magazine &magazine, uint64_t bytes);
    // Called when all work that may use unordered frees with tags up to this one is done.
    void complete_batches(uint64_t tag);
    void drain_own(); // empties the calling thread's magazines, and the depots
    bool drain_all(); // false: there was nothing
    // Unordered frees that still wait return to the heap without waiting.
    void give_up_waiting_blocks();
    void forget_quarantine();

    // While such an object lives, its thread looks for whole blocks, and depots take no batches.
    // The thread has the lock at the beginning. At the end it takes the lock if an exception came
    // while the lock was released.
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
    // Keeps the owners out of their magazines until reopen(). Hold the pool's lock until then.
    void shut() { shut(nullptr); }
    void reopen();
    // Waits until no thread still uses an address that it looked up before the map's last change.
    void await_lookups();
    // Empties the magazines of this free pool permanently; NULL: all magazines. At its next call an
    // owner finds out, and may make another magazine.
    void close(const StreamPool *pool);
    void retire_magazine(Magazine &magazine); // no lock is held: the thread that owns it ends
    // No lock is held, and no section of relaxed mode is open, because the log may run the
    // program's code.
    void warn_of_refused_fence();

    // --- counts ---
    Counts &counts() const { return memory_.counts; }
    uint64_t idle_bytes() const;         // for their owners to take again
    uint64_t quarantined_bytes() const;  // without those of the block depot
    uint64_t largest_kept_block() const; // the largest block that is kept out of the heap
    uint64_t waiting_block_bytes() const { return block_depot_.waiting_bytes(); } // of that
    uint64_t live_bytes() const; // without the magazines' changes since their last refills
    uint64_t calls_served() const;
    void report(emm_stats &stats) const;
    void reset_peak();         // of live bytes
    std::string fault() const; // the first broken invariant; empty if all hold

private:
    // Marks the entries of unregistered streams in a thread's table.
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
    List<Magazine, &Magazine::active_> active_;            // the others are parked
    std::unordered_map<const StreamPool *, Depot> depots_; // while the free pool has magazines
    SpareBatches spares_;
    BatchQueue quarantine_; // slots freed unordered
    uint64_t quarantined_ = 0;
    BlockDepot block_depot_;   // blocks freed unordered
    uint32_t handed_over_ = 0; // blocks since the last batch that was worth an event
    uint64_t handed_over_bytes_ = 0;
    bool asked_ = false; // the driver was asked about blocks, and none has become complete since
    DepotTotals totals_;
    std::atomic<int> refused_fence_{0}; // the kernel's answer, until the program has been told
};

} // namespace emm::pool

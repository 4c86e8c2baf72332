// What threads keep of free memory: their magazines, the depots between them, and the quarantine of
// what was freed unordered.
//
//   thread_caches.cpp  making magazines, and what lies in all of them
//   refilling.cpp      filling and emptying them
//   closing.cpp        keeping their owners out, for a while or for good
//   check.cpp          the invariants
//
// The pool's lock is held, except where said otherwise; what is another thread's is closed while it
// is looked into.
#pragma once

#include "counts.h"
#include "depot.h"
#include "heap/slabs.h"
#include "magazine.h"
#include "order/stream_order.h"
#include "thread.h"

#include <emm/plugin.h>

#include <string>
#include <unordered_map>

namespace emm::pool {

// Who the pinned memory of magazines belongs to.
class PinnedOwner {
public:
    // All that the magazine has of it; the counts of its owner as well.
    virtual void drain_pinned(Magazine &magazine) = 0;

protected:
    ~PinnedOwner() = default;
};

class ThreadCaches {
public:
    // What a manager's caches work with. `serving` is its identity, or 0 once nothing is reused.
    struct Parts {
        ServedContext &context;
        Mutex &mutex;
        const TagClock &clock;
        StreamOrder &order;
        Heap &heap;
        Slabs &slabs;
        Counts &counts;
        PinnedOwner &pinned;
    };
    ThreadCaches(const Parts &parts, uint64_t identity, const std::atomic<uint64_t> &serving,
                 bool keeps_blocks);
    ThreadCaches(const ThreadCaches &) = delete;
    ThreadCaches &operator=(const ThreadCaches &) = delete;

    // --- magazines ---
    // No lock is held. The magazine of an unregistered stream is found by its handle and proved by
    // its id.
    Magazine *find_unregistered(emm_stream stream) const;
    // The calling thread's magazine for the free pool, which `stream` leads to from now on; NULL if
    // it can have none.
    Magazine *own(emm_stream stream, StreamPool &pool) { return own(identity_, stream, pool); }
    // The one for a call on the slow path, once that is worth while; else NULL.
    Magazine *own_for(const Caller &caller, StreamPool &pool);
    template <class Function> void each(Function function) const {
        for (Magazine *m = magazines_.first(); m; m = magazines_.next(*m)) {
            function(*m);
        }
    }

    // --- filling and emptying ---
    // What the magazine counted becomes part of the pool's counts.
    void take_over(Magazine &magazine);
    void refill(Magazine &magazine, unsigned index);    // an empty bin
    void make_room(Magazine &magazine, unsigned index); // for one more freed slot of this class
    void unload_blocks(Magazine &magazine);
    // All work that may use what was freed unordered with tags up to this one is done.
    void complete_batches(uint64_t tag);
    void drain_own(); // what the calling thread keeps, and what lies in depots
    bool drain_all(); // false: there was nothing
    void forget_quarantine();

    // While threads look for whole blocks, depots take no batches.
    void begin_search() { totals_.searches++; }
    void end_search() { totals_.searches--; }
    bool any_search() const { return totals_.searches > 0; }

    // --- closing ---
    // The owners are kept out until reopen(); hold the pool's lock until then.
    void shut() { shut(nullptr); }
    void reopen();
    // No thread that looked an address up before the last change to the map is still looking.
    void await_lookups();
    // Empties the magazines of this free pool, or of all if it is NULL, for good. Their owners'
    // next call finds out, and may make another.
    void close(const StreamPool *pool);
    void part_with(Magazine &magazine); // no lock is held: the thread that owns it ends

    // --- counts ---
    uint64_t idle_bytes() const;    // for their owners to take again, or on the way to quarantine
    uint64_t pending_bytes() const; // in quarantine
    uint64_t live_bytes() const;
    uint64_t calls_served() const;
    void report(emm_stats &stats) const;
    std::string fault() const; // the first broken invariant; empty if all hold

private:
    // Tells the ways of unregistered streams from others in a thread's table.
    static constexpr uint64_t unregistered_bit = uint64_t(1) << 63;

    Magazine *own(uint64_t identity, emm_stream stream, StreamPool &pool);
    Magazine &make(Thread &thread, StreamPool &pool);
    void make_room_for_unregistered(const StreamPool &pool);
    static void widen(Bin &bin, unsigned index, uint32_t limit);
    void give_slots(const SlotAt *slots, uint32_t count, StreamPool &pool);
    void unload(Magazine &magazine, unsigned index, uint32_t count);
    void quarantine(Magazine &magazine, unsigned index);
    void clear(Depot &depot, StreamPool &pool);
    void drain(Magazine &magazine);
    void shut(const StreamPool *pool);
    void close(Magazine &magazine);

    const Parts parts_;
    const uint64_t identity_;
    const std::atomic<uint64_t> &serving_;
    const bool keeps_blocks_; // of streams
    List<Magazine, &Magazine::of_manager_> magazines_;
    std::unordered_map<const StreamPool *, Depot> depots_; // while the free pool has magazines
    SpareBatches spares_;
    BatchQueue quarantine_; // slots freed unordered
    uint64_t quarantined_ = 0;
    DepotTotals totals_;
};

} // namespace emm::pool

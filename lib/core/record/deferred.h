#pragma once

#include <emm/plugin.h>

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <mutex>
#include <vector>

namespace emm::core {

// How much may be pending before a queue is emptied: strictly more than either limit empties it.
struct DeferredLimits {
    uint64_t count = 10;
    double ratio = 0.2; // of the context's total memory
};

// EMM_MAX_PENDING_DEALLOCS_COUNT and _RATIO, as Numba has them; a value that makes no sense is
// warned about and ignored.
DeferredLimits read_deferred_limits();

// Those of this process, read once, when a plugin is first asked about.
const DeferredLimits &deferred_limits();

// One context's pending deallocations: first in, first out. A flush takes the whole list under the
// lock and runs it outside, so entries may push, and plugins may be called.
class PendingDeallocations {
public:
    struct Entry {
        emm_deferred function;
        void *argument;
        uint64_t bytes;
    };

    explicit PendingDeallocations(const DeferredLimits &limits) : limits_(limits) {}

    // The ratio's whole; 0 as long as it is not known, and then only the count limits.
    void set_total_memory(uint64_t bytes) { total_ = bytes; }

    // True if a limit is passed and no section forbids a flush. May throw std::bad_alloc.
    bool push(const Entry &entry);

    void enter();
    // The answer says whether there was a section to leave; *ret_flush, whether a flush is due.
    bool leave(bool *ret_flush);
    bool in_section() const { return sections() != 0; }
    uint64_t sections() const; // begun and not ended

    // Takes what is pending.
    std::vector<Entry> take();

    uint64_t count() const;
    uint64_t bytes() const;

private:
    bool passed_locked() const;

    const DeferredLimits limits_;
    std::atomic<uint64_t> total_{0};
    mutable std::mutex mutex_;
    std::vector<Entry> entries_;
    uint64_t bytes_ = 0;
    uint64_t sections_ = 0;
};

// The flushes and trims of one context that are under way. What they have taken is in no queue and
// no cache any more, and not free before they end: a request that memory ran out for waits for
// those that other threads have begun.
class Returns {
public:
    // One flush or trim, from before it takes anything.
    class Scope {
    public:
        explicit Scope(Returns &returns) noexcept;
        ~Scope();
        Scope(const Scope &) = delete;
        Scope &operator=(const Scope &) = delete;

    private:
        friend class Returns;
        Returns &returns_;
        const bool entered_; // false: this is a forked child
        uint64_t number_ = 0;
        Scope *next_ = nullptr; // begun before this one
    };

    // The wait has an end: what a flush runs, a finalizer or a plugin's free, may need a lock that
    // the caller's thread holds. A free in the driver, which may wait for a kernel, takes less.
    static constexpr std::chrono::milliseconds longest_wait{4000};

    // True when all that had begun have ended. False where the time is up, and at once for a thread
    // that is within a scope itself, of any context: no two threads wait for each other.
    bool wait_for_others(std::chrono::milliseconds at_most = longest_wait) noexcept;

    unsigned waiting() const; // threads

private:
    bool is_running_locked(uint64_t last) const;

    mutable std::mutex mutex_;
    std::condition_variable ended_;
    uint64_t begun_ = 0;
    unsigned waiting_ = 0;
    Scope *first_ = nullptr; // the last one begun
};

} // namespace emm::core

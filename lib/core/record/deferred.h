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

// EMM_MAX_PENDING_DEALLOCS_COUNT and _RATIO, as in Numba. A value that makes no sense is ignored
// with a warning.
DeferredLimits read_deferred_limits();

// The limits of this process, read when a plugin is first asked about them.
const DeferredLimits &deferred_limits();

// One context's pending deallocations: first in, first out. A flush takes the whole list under the
// lock and runs it outside. So entries may push, and plugins may be called.
class PendingDeallocations {
public:
    struct Entry {
        emm_deferred function;
        void *argument;
        uint64_t bytes;
    };

    explicit PendingDeallocations(const DeferredLimits &limits) : limits_(limits) {}

    // The base of the ratio, which may change. 0 means that it is not known yet: then only the
    // count limits.
    void set_total_memory(uint64_t bytes) { total_ = bytes; }

    // True if a limit is passed and no section forbids a flush. May throw std::bad_alloc.
    bool push(const Entry &entry);

    void enter();
    // Returns whether there was a section to leave; *ret_flush: whether a flush is due.
    bool leave(bool *ret_flush);
    bool in_section() const { return sections() != 0; }
    uint64_t sections() const; // begun and not ended

    // Takes all pending entries.
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

// The flushes and trims of one context that are under way. Memory that they have taken is in no
// queue and no cache, but is free only when they end. If memory has run out, a request waits for
// the flushes and trims that other threads have begun.
class Returns {
public:
    // One flush or trim; begins before it takes anything.
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

    // The wait is bounded, because a finalizer or a plugin's free inside a flush may need a lock of
    // the calling thread. A free in the driver, which may wait for a kernel, takes less.
    static constexpr std::chrono::milliseconds longest_wait{4000};

    // True when all scopes that had begun have ended. False after the time-out. False at once if
    // the thread is itself within a scope of any context, so that no two threads wait for each
    // other; or if it must not run code of the program (NoProgramCode), which a scope may run.
    bool wait_for_others(std::chrono::milliseconds at_most = longest_wait) noexcept;

    unsigned waiting() const; // number of threads

private:
    bool is_running_locked(uint64_t last) const;

    mutable std::mutex mutex_;
    std::condition_variable ended_;
    uint64_t begun_ = 0;
    unsigned waiting_ = 0;
    Scope *first_ = nullptr; // the last one begun
};

} // namespace emm::core

// Handles against reset.
//
// A handle may be released by any thread at any time, also while its context is being reset or
// retired; the plugin must not see that free, and no free may be inside the plugin when its reset
// begins. So each context has an epoch, and knows which threads have a handle's call inside:
//
//     epoch    0 serving | 1 closed, reset at work | 2 serving | 3 closed ...
//
//     a handle's call: say that this thread is inside; read the epoch; call the plugin if it is the
//                      handle's own (for an allocation: if it is even); say that it has left
//     reset:           epoch + 1; wait until no call is inside; reset the plugin; epoch + 1
//
// Saying and reading must not change places: then the reset sees and waits for a call that reads
// the old epoch, and no call that has read the new one reaches the plugin with old memory. So a
// release never waits, and a handle's generation needs no list of handles to be brought up to date.
//
// A thread says it with a plain store of its own: reset is rare, so it is reset that pays, and lets
// the kernel run a barrier on each processor where a thread of this process runs (membarrier).
// Where the kernel does not know that, for a call within a call, and in a thread that is at its
// end, the call is counted instead, by atomic additions, which cost 5 to 7 ns each and order
// themselves. A call that leaves tells no other thread, which would cost every call: reset looks
// again until none is inside.
#pragma once

#include "core/record/this_thread.h"

#include <atomic>
#include <cstdint>

namespace emm::core {

class Epoch;

// The epoch that a thread is in. The list of slots only grows, up to the largest number of threads
// at one time.
struct alignas(64) EpochSlot {
    std::atomic<const Epoch *> inside{nullptr};
    std::atomic<bool> taken{true};
    EpochSlot *next = nullptr;
};

class Epoch {
public:
    static bool is_serving(uint64_t epoch) { return epoch % 2 == 0; }
    static uint64_t generation(uint64_t epoch) { return (epoch + 1) / 2 + 1; }

    // The current epoch, or the next one that serves.
    uint64_t serving() const noexcept {
        return (epoch_.load(std::memory_order_acquire) + 1) & ~1ull;
    }

    // Whether the memory of this epoch has been given up, by a successful reset or a retirement.
    bool has_dropped(uint64_t epoch) const noexcept {
        return epoch < dropped_.load(std::memory_order_seq_cst);
    }
    // Whether the epoch is over, and its memory has not been given up yet.
    bool is_dropping(uint64_t epoch) const noexcept {
        return !has_dropped(epoch) && epoch < epoch_.load(std::memory_order_acquire);
    }
    // While closed: notes that the memory of all epochs until now has been given up.
    void note_dropped() noexcept { dropped_.store(epoch_.load(), std::memory_order_seq_cst); }

    // Ends an epoch and waits for the calls inside; `open` begins the next one. One thread at a
    // time, and no thread that is inside a call.
    void close() noexcept;
    void open() noexcept;
    // Ends an epoch. False: a call is inside, and the next epoch has begun already.
    bool try_close() noexcept;

private:
    friend class HandleCall;

    uint64_t enter(EpochSlot &mine) noexcept {
        mine.inside.store(this, std::memory_order_release);
        // The processor may still delay the store: close makes up for that.
        std::atomic_signal_fence(std::memory_order_seq_cst);
        return epoch_.load(std::memory_order_acquire);
    }
    uint64_t enter_counted() noexcept {
        counted_.fetch_add(1, std::memory_order_seq_cst);
        return epoch_.load(std::memory_order_seq_cst);
    }
    void leave_counted() noexcept { counted_.fetch_sub(1, std::memory_order_release); }
    void end_epoch() noexcept;
    bool is_entered() const noexcept;

    alignas(64) std::atomic<uint64_t> epoch_{0};
    std::atomic<uint64_t> dropped_{0}; // memory of epochs before this one has been given up
    alignas(64) std::atomic<uint32_t> counted_{0};
};

// The calling thread's slot; NULL if the thread must be counted.
[[gnu::noinline, gnu::cold]] EpochSlot *find_epoch_slot() noexcept;

// Marks, for a scope, that the calling thread is inside a call by a handle. May be nested.
class HandleCall {
public:
    explicit HandleCall(Epoch &epoch) noexcept
        : epoch_(epoch), mine_(free_epoch_slot()),
          seen_(mine_ ? epoch.enter(*mine_) : epoch.enter_counted()) {
        ++this_thread.depth;
    }
    ~HandleCall() {
        --this_thread.depth;
        if (mine_) [[likely]] {
            mine_->inside.store(nullptr, std::memory_order_release);
        } else {
            epoch_.leave_counted();
        }
    }
    HandleCall(const HandleCall &) = delete;
    HandleCall &operator=(const HandleCall &) = delete;
    uint64_t epoch() const { return seen_; }

private:
    static EpochSlot *free_epoch_slot() noexcept {
        if (this_thread.depth != 0) [[unlikely]] {
            return nullptr;
        }
        EpochSlot *const mine = this_thread.epoch_slot;
        return mine ? mine : find_epoch_slot();
    }

    Epoch &epoch_;
    EpochSlot *const mine_;
    const uint64_t seen_;
};

// For a scope, no call by a handle is inside.
class Closed {
public:
    explicit Closed(Epoch &epoch) noexcept : epoch_(epoch) { epoch.close(); }
    ~Closed() { epoch_.open(); }
    Closed(const Closed &) = delete;
    Closed &operator=(const Closed &) = delete;

private:
    Epoch &epoch_;
};

} // namespace emm::core

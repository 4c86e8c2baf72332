// Handles against reset.
//
// A handle may be released by any thread at any time, also while its context is being reset or
// retired; the plugin must not see that free, and no free may be inside the plugin when its reset
// begins. So each context has an epoch, and a count of the calls that handles have inside:
//
//     epoch    0 serving | 1 closed, reset at work | 2 serving | 3 closed ...
//
//     a handle's call: count + 1; read the epoch; call the plugin if it is the handle's own
//                      (for an allocation: if it is even); count - 1
//     reset:           epoch + 1; wait until the count has been 0; reset the plugin; epoch + 1
//
// Count and epoch are written and read in one total order: whoever reads the old epoch is in the
// count that reset waits for. Nobody who has read the new one calls the plugin with old memory. So
// a release never waits, and a handle's generation needs no list of handles to be brought up to
// date.
//
// The count is kept in 64 lines, each mostly for one thread's use: two uncontended atomic additions
// are 6 ns, a shared one among 16 threads would be hundreds. Nobody is told when a call leaves,
// which would cost every call: reset, which is rare and slow, looks again until it is so.
#pragma once

#include "core/this_thread.h"

#include <atomic>
#include <cstdint>

namespace emm::core {

class Epoch {
public:
    static bool is_serving(uint64_t epoch) { return epoch % 2 == 0; }
    static uint64_t generation(uint64_t epoch) { return (epoch + 1) / 2 + 1; }

    // The epoch now, or the next one that serves.
    uint64_t serving() const noexcept {
        return (epoch_.load(std::memory_order_acquire) + 1) & ~1ull;
    }

    // A call by a handle begins and ends. The calling thread's, and nested at will.
    uint64_t enter() noexcept {
        inside_[thread_number() % lines].count.fetch_add(1, std::memory_order_seq_cst);
        ++this_thread.depth;
        return epoch_.load(std::memory_order_seq_cst);
    }
    void leave() noexcept {
        --this_thread.depth;
        inside_[thread_number() % lines].count.fetch_sub(1, std::memory_order_release);
    }

    // Ends an epoch and waits for the calls inside; begins the next one. One thread at a time, and
    // none that is inside a call.
    void close() noexcept;
    void open() noexcept;

private:
    static constexpr uint32_t lines = 64;
    struct alignas(64) Line {
        std::atomic<uint32_t> count{0};
    };

    alignas(64) std::atomic<uint64_t> epoch_{0};
    Line inside_[lines];
};

// Inside a call by a handle, for a scope.
class HandleCall {
public:
    explicit HandleCall(Epoch &epoch) noexcept : epoch_(epoch), seen_(epoch.enter()) {}
    ~HandleCall() { epoch_.leave(); }
    HandleCall(const HandleCall &) = delete;
    HandleCall &operator=(const HandleCall &) = delete;
    uint64_t epoch() const { return seen_; }

private:
    Epoch &epoch_;
    const uint64_t seen_;
};

// No call by a handle is inside, for a scope.
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

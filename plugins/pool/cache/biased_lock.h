// A lock for what one thread uses all the time and others hardly ever. Its owner enters and leaves
// with plain stores. Another thread closes it, makes every processor see that, and waits until the
// owner is out. A thread that closes such locks holds the pool's lock, so there is one at a time,
// and an owner that finds its lock closed takes the pool's lock instead.
#pragma once

#include <atomic>
#include <cstdint>

namespace emm::pool {

class BiasedLock {
public:
    // Call this once, before the first lock is used.
    static void prepare();

    // --- the owner's side
    bool enter() {
        inside_.store(1, std::memory_order_relaxed);
        // The processor may still delay the store: fence_owners makes up for that.
        std::atomic_signal_fence(std::memory_order_seq_cst);
        if (state_.load(std::memory_order_acquire) == open) [[likely]] {
            return true;
        }
        inside_.exchange(1, std::memory_order_seq_cst);
        if (state_.load(std::memory_order_seq_cst) == open_fenced) {
            return true;
        }
        leave();
        return false;
    }
    void leave() { inside_.store(0, std::memory_order_release); }
    bool closed_for_good() const { return state_.load(std::memory_order_acquire) == for_good; }

    // --- the other side: close any number, then fence_owners if one of them was plain, then await
    // each
    bool close() { return state_.exchange(meanwhile, std::memory_order_seq_cst) == open; }
    // Returns 0, or the kernel's error when it refuses the fence for the first time. From then on,
    // each owner uses a fence of its own.
    static int fence_owners();
    void await_owner() const;
    void reopen() { state_.store(usual(), std::memory_order_release); }
    void close_for_good() { state_.store(for_good, std::memory_order_release); }

private:
    enum : uint32_t { open, open_fenced, meanwhile, for_good };
    static uint32_t usual() { return fenced_.load(std::memory_order_relaxed) ? open_fenced : open; }

    static std::atomic<bool>
        fenced_; // the kernel cannot help, so each owner uses a fence of its own

    std::atomic<uint32_t> inside_{0};
    std::atomic<uint32_t> state_{usual()};
};

} // namespace emm::pool

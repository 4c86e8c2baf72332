// The door to what one thread uses all the time and others hardly ever. The owner goes in and out
// with plain stores; whoever else wants in shuts the door, makes every processor see that, and
// waits until the owner is out. The one who shuts gates holds the pool's lock, so there is one at a
// time, and an owner that finds its gate shut takes the lock to come in.
#pragma once

#include <atomic>
#include <cstdint>

namespace emm::pool {

class Gate {
public:
    // Once, before the first gate is used.
    static void prepare();

    // --- the owner's side
    bool enter() {
        inside_.store(1, std::memory_order_relaxed);
        // The processor may still delay the store: see_everywhere makes up for that.
        std::atomic_signal_fence(std::memory_order_seq_cst);
        if (shut_.load(std::memory_order_acquire) == open) [[likely]] {
            return true;
        }
        inside_.exchange(1, std::memory_order_seq_cst);
        if (shut_.load(std::memory_order_seq_cst) == open_fenced) {
            return true;
        }
        leave();
        return false;
    }
    void leave() { inside_.store(0, std::memory_order_release); }
    bool locked_for_good() const { return shut_.load(std::memory_order_acquire) == for_good; }

    // --- the other side: shut any number, then see_everywhere if one of them was plain, then await
    // each
    bool shut() { return shut_.exchange(meanwhile, std::memory_order_seq_cst) == open; }
    // Not 0: the kernel has just refused, with this error, what it did so far, and from now on each
    // owner pays for itself.
    static int see_everywhere();
    void await_owner() const;
    void reopen() { shut_.store(usual(), std::memory_order_release); }
    void lock_for_good() { shut_.store(for_good, std::memory_order_release); }

private:
    enum : uint32_t { open, open_fenced, meanwhile, for_good };
    static uint32_t usual() { return fenced_.load(std::memory_order_relaxed) ? open_fenced : open; }

    static std::atomic<bool> fenced_; // the kernel cannot do it, so each owner pays for itself

    std::atomic<uint32_t> inside_{0};
    std::atomic<uint32_t> shut_{usual()};
};

} // namespace emm::pool

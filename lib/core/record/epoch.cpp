#include "core/record/epoch.h"

#include "fence/asymmetric_fence.h"
#include "observe/log.h"

#include <emm/plugin.h>

#include <chrono>
#include <new>
#include <pthread.h>
#include <thread>

namespace emm::core {
namespace {

std::atomic<EpochSlot *> first_epoch_slot{nullptr};

// Runs when the thread ends. Its later calls by handles are counted.
void give_back_epoch_slot(void *epoch_slot) {
    this_thread.epoch_slot = nullptr;
    this_thread.is_counted = true;
    static_cast<EpochSlot *>(epoch_slot)->taken.store(false, std::memory_order_release);
}

// Set once; cleared if the kernel refuses the barrier later.
std::atomic<bool> plain_stores_do{false};

// The kernel may refuse the barrier at any time, if a sandbox begins after the start. Threads with
// a slot go on with plain stores, so every later reset visits all processors; other threads are
// counted.
void run_barrier() noexcept {
    if (asymmetric_fence() == 0) {
        return;
    }
    if (plain_stores_do.exchange(false)) {
        observe::log(
            EMM_LOG_WARN,
            "the kernel now refuses membarrier (a sandbox?); resets take longer from now on");
    }
    if (first_epoch_slot.load(std::memory_order_seq_cst)) {
        slow_asymmetric_fence();
    }
}

// Registers the barrier and the end-of-thread key, which plain stores need. False: one of them is
// not to be had.
bool prepare(pthread_key_t &end_of_thread) {
    return register_asymmetric_fence() &&
           pthread_key_create(&end_of_thread, &give_back_epoch_slot) == 0;
}

EpochSlot *take_epoch_slot() {
    EpochSlot *first = first_epoch_slot.load(std::memory_order_acquire);
    for (EpochSlot *other = first; other; other = other->next) {
        if (!other->taken.load(std::memory_order_relaxed) &&
            !other->taken.exchange(true, std::memory_order_acquire)) {
            return other;
        }
    }
    auto *const made = new (std::nothrow) EpochSlot;
    if (made) {
        made->next = first;
        while (
            !first_epoch_slot.compare_exchange_weak(made->next, made, std::memory_order_acq_rel)) {
        }
    }
    return made;
}

} // namespace

EpochSlot *find_epoch_slot() noexcept {
    static pthread_key_t end_of_thread;
    static const bool prepared = plain_stores_do = prepare(end_of_thread);
    if (this_thread.is_counted || !prepared || !plain_stores_do.load(std::memory_order_relaxed)) {
        return nullptr;
    }
    EpochSlot *const mine = take_epoch_slot();
    if (mine && pthread_setspecific(end_of_thread, mine) == 0) {
        this_thread.epoch_slot = mine;
        return mine;
    }
    if (mine) {
        mine->taken.store(false, std::memory_order_release);
    }
    this_thread.is_counted = true;
    return nullptr;
}

void Epoch::end_epoch() noexcept {
    epoch_.fetch_add(1, std::memory_order_seq_cst);
    run_barrier(); // each thread's store is visible now, or that thread reads the new epoch
}

bool Epoch::try_close() noexcept {
    end_epoch();
    if (!is_entered()) {
        return true;
    }
    open();
    return false;
}

void Epoch::close() noexcept {
    end_epoch();
    for (int looks = 0; is_entered(); ++looks) {
        if (looks < 100) {
            std::this_thread::yield();
        } else {
            std::this_thread::sleep_for(std::chrono::microseconds(50));
        }
    }
}

// A thread that takes a slot after this loop has passed it reads the new epoch.
bool Epoch::is_entered() const noexcept {
    const EpochSlot *one = first_epoch_slot.load(std::memory_order_seq_cst);
    for (; one; one = one->next) {
        if (one->inside.load(std::memory_order_seq_cst) == this) {
            return true;
        }
    }
    return counted_.load(std::memory_order_seq_cst) != 0;
}

void Epoch::open() noexcept {
    epoch_.fetch_add(1, std::memory_order_release);
}

} // namespace emm::core

#include "thread.h"

#include "thread_caches.h"

#include <algorithm>
#include <cstdlib>
#include <pthread.h>
#include <sys/syscall.h>
#include <unistd.h>
#include <unwind.h>

namespace emm::pool {

// exit() destroys the calling thread's objects, too, perhaps in a signal handler that has
// interrupted a call of the pool. Then nothing is torn down.
static bool is_in_exit() {
    bool found = false;
    _Unwind_Backtrace(
        [](_Unwind_Context *frame, void *ret_found) {
            void *const at = reinterpret_cast<void *>(_Unwind_GetIP(frame) - 1);
            const bool is_exit =
                _Unwind_FindEnclosingFunction(at) == reinterpret_cast<void *>(&std::exit);
            *static_cast<bool *>(ret_found) = is_exit;
            return is_exit ? _URC_NORMAL_STOP : _URC_NO_REASON;
        },
        &found);
    return found;
}

// For a thread that has used its own stream. Runs before the destructors of pthread keys, one of
// which is the driver's and ends that stream.
struct EarlyEnd {
    bool wanted = false;
    ~EarlyEnd() {
        if (wanted && !is_in_exit()) {
            Thread::end(Thread::self_);
        }
    }
};

namespace {

// Not within the function: a guard there takes eight bytes of each thread's storage.
constinit thread_local EarlyEnd early_end;

// The C library needs memory to register a destructor, and ends the process without. So this makes
// sure that there is some.
void end_early() {
    constexpr size_t enough = 256;
    ::operator delete(::operator new(enough));
    early_end.wanted = true;
}

} // namespace

// The process's first thread ends with the process, and so does the only thread of a forked child,
// so nothing is torn down.
void Thread::end(void *thread) {
    if (thread != self_ || syscall(SYS_gettid) == getpid()) { // ended early, or not at all
        return;
    }
    is_over_ = true;
    self_ = nullptr;
    delete static_cast<Thread *>(thread);
}

// A thread-local object's destructor would not do: without memory to register it, the C library
// ends the process.
Thread *Thread::self() {
    if (!self_ && !is_over_) {
        static pthread_key_t key;
        static const bool made = pthread_key_create(&key, &end) == 0;
        auto thread = std::make_unique<Thread>();
        if (!made || pthread_setspecific(key, thread.get()) != 0) {
            throw std::bad_alloc();
        }
        self_ = thread.release();
    }
    return self_;
}

Mutex &Thread::ending() {
    static union Lasting { // outlives whatever the process destroys, and needs no memory
        Mutex mutex;
        Lasting() : mutex() {}
        ~Lasting() {}
    } the;
    return the.mutex;
}

Thread::~Thread() {
    for (auto &magazine : magazines_) {
        const std::lock_guard lock(ending());
        if (!magazine->lock.closed_for_good()) {
            magazine->caches.retire_magazine(*magazine);
        }
    }
    own_streams_.end();
}

void Thread::remember_own_stream(uint64_t manager_number) noexcept {
    try {
        Thread *thread = self();
        if (thread) {
            end_early();
            thread->own_streams_.add(manager_number);
        }
    } catch (const std::bad_alloc &) { // a context event will cover the work that it leaves
    }
}

void Thread::set_way(uint64_t manager_identity, emm_stream stream, Magazine &magazine) {
    ways_[number_of(manager_identity, stream)] = {manager_identity, stream, &magazine};
}

// Streams that work share ways with others, so theirs are moved to where they are found first.
Magazine *Thread::find(const StreamPool &pool, uint64_t manager_identity) {
    const auto found =
        std::find_if(magazines_.begin(), magazines_.end(), [&](const auto &magazine) {
            return magazine->is_of(pool, manager_identity) && !magazine->lock.closed_for_good();
        });
    if (found == magazines_.end()) {
        return nullptr;
    }
    std::rotate(magazines_.begin(), found, found + 1);
    return magazines_.front().get();
}

Magazine &Thread::make_magazine(ThreadCaches &caches, uint64_t identity, StreamPool &pool,
                                Depot &depot, const BlockLimits &limits) {
    forget_dead();
    magazines_.push_back(std::make_unique<Magazine>(caches, identity, pool, depot, *this, limits));
    return *magazines_.back();
}

// Magazines whose stream or pool has gone.
void Thread::forget_dead() {
    for (size_t i = 0; i < magazines_.size();) {
        if (!magazines_[i]->lock.closed_for_good()) {
            i++;
            continue;
        }
        for (Way &way : ways_) {
            way = way.magazine == magazines_[i].get() ? Way{} : way;
        }
        std::swap(magazines_[i], magazines_.back());
        magazines_.pop_back();
    }
}

} // namespace emm::pool

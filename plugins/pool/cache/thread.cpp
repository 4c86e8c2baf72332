#include "thread.h"

#include "thread_caches.h"

#include <sys/syscall.h>
#include <unistd.h>

namespace emm::pool {

namespace {

thread_local bool is_over = false; // this thread is past its ThreadEnd

} // namespace

// Destroyed when its thread ends. The process's first thread ends with the process, and so does the
// only thread of a fork's child: nothing is torn down then.
struct ThreadEnd {
    Thread *thread = nullptr;
    ~ThreadEnd() {
        if (syscall(SYS_gettid) == getpid()) {
            return;
        }
        is_over = true;
        Thread::self_ = nullptr;
        delete thread;
    }
};

Thread *Thread::self() {
    if (!self_ && !is_over) {
        static thread_local ThreadEnd end;
        end.thread = new Thread;
        self_ = end.thread;
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
            magazine->caches_.part_with(*magazine);
        }
    }
    own_streams_.end();
}

void Thread::remember_own_stream(uint64_t manager_number) noexcept {
    try {
        Thread *thread = self();
        if (thread) {
            thread->own_streams_.add(manager_number);
        }
    } catch (const std::bad_alloc &) { // a context event will cover what it leaves
    }
}

void Thread::set_way(uint64_t manager_identity, emm_stream stream, Magazine &magazine) {
    ways_[number_of(manager_identity, stream)] = {manager_identity, stream, &magazine};
}

Magazine *Thread::find(const StreamPool &pool, uint64_t manager_identity) const {
    for (const auto &magazine : magazines_) {
        if (&magazine->pool == &pool && magazine->manager_identity_ == manager_identity &&
            !magazine->lock.closed_for_good()) {
            return magazine.get();
        }
    }
    return nullptr;
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

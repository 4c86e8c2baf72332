// The pool's lock, under which no driver call is made. The checking build counts the locks that a
// thread holds, and checks the driver's entries.
#pragma once

#include <atomic>
#include <mutex>

namespace emm::pool {

#ifdef EMM_POOL_CHECK

class Mutex {
public:
    void lock() {
        mutex_.lock();
        held_by_this_thread++;
    }
    void unlock() {
        held_by_this_thread--;
        mutex_.unlock();
    }
    // Called when a driver call begins. The first call under a lock is remembered and reported to
    // all.
    static void expect_none(const char *call) {
        const char *none = nullptr;
        if (held_by_this_thread > 0) {
            offender.compare_exchange_strong(none, call);
        }
    }
    static inline std::atomic<const char *> offender{nullptr};

private:
    static inline thread_local int held_by_this_thread = 0;
    std::mutex mutex_;
};

template <class Function> class Entry;
template <class Result, class... Arguments> class Entry<Result (*)(Arguments...)> {
public:
    using Function = Result (*)(Arguments...);
    Entry(Function function, const char *name) : function_(function), name_(name) {}
    explicit operator bool() const { return function_; }
    Result operator()(Arguments... arguments) const {
        Mutex::expect_none(name_);
        return function_(arguments...);
    }

private:
    Function function_;
    const char *name_;
};

#else

using Mutex = std::mutex;

template <class Function> class Entry {
public:
    Entry(Function function, const char *) : function_(function) {}
    explicit operator bool() const { return function_; }
    operator Function() const { return function_; }

private:
    Function function_;
};

#endif

using Lock = std::unique_lock<Mutex>;

// While it lives, the calling thread does not hold the lock.
class Unlocked {
public:
    explicit Unlocked(Lock &lock) : lock_(lock) { lock_.unlock(); }
    ~Unlocked() { lock_.lock(); }
    Unlocked(const Unlocked &) = delete;
    Unlocked &operator=(const Unlocked &) = delete;

private:
    Lock &lock_;
};

} // namespace emm::pool

#include "core/record/returns.h"

#include "core/record/this_thread.h"
#include "core/record/uncancelled.h"
#include "observe/process.h"

namespace emm::core {

Returns::Scope::Scope(Returns &returns) noexcept
    : returns_(returns), entered_(!observe::is_forked_child()) {
    if (!entered_) {
        return;
    }
    ++this_thread.returning;
    const std::lock_guard lock(returns_.mutex_);
    number_ = ++returns_.begun_;
    next_ = returns_.first_;
    returns_.first_ = this;
}

// In a child that was forked from within, the lock may be held by a thread that is not there.
Returns::Scope::~Scope() {
    if (!entered_ || observe::is_forked_child()) {
        return;
    }
    --this_thread.returning;
    const std::lock_guard lock(returns_.mutex_);
    Scope **at = &returns_.first_;
    while (*at != this) {
        at = &(*at)->next_;
    }
    *at = next_;
    returns_.ended_.notify_all();
}

bool Returns::wait_for_others(std::chrono::milliseconds at_most) noexcept {
    if (this_thread.returning != 0 || observe::is_forked_child()) {
        return false;
    }
    const Uncancelled uncancelled;
    std::unique_lock lock(mutex_);
    const uint64_t last = begun_; // not those of threads that run out of memory later
    ++waiting_;
    const bool ended = ended_.wait_for(lock, at_most, [&] { return !is_running_locked(last); });
    --waiting_;
    return ended;
}

unsigned Returns::waiting() const {
    const std::lock_guard lock(mutex_);
    return waiting_;
}

bool Returns::is_running_locked(uint64_t last) const {
    for (const Scope *scope = first_; scope; scope = scope->next_) {
        if (scope->number_ <= last) {
            return true;
        }
    }
    return false;
}

} // namespace emm::core

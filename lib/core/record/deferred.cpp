#include "core/record/deferred.h"

#include "core/record/this_thread.h"
#include "observe/environment.h"
#include "observe/process.h"
#include "observe/program_code.h"
#include "observe/settings.h"

#include <string_view>
#include <utility>

namespace emm::core {
namespace {

// The setting's number, at most `most`, or the default.
template <typename Number> Number number_in(const char *setting, Number most, Number otherwise) {
    const std::string_view text = observe::setting(setting);
    return text.empty() ? otherwise : observe::number_of(text, most).value_or(otherwise);
}

} // namespace

DeferredLimits read_deferred_limits() {
    DeferredLimits limits;
    limits.count = number_in("EMM_MAX_PENDING_DEALLOCS_COUNT", UINT64_MAX, limits.count);
    limits.ratio = number_in("EMM_MAX_PENDING_DEALLOCS_RATIO", 1.0, limits.ratio);
    return limits;
}

const DeferredLimits &deferred_limits() {
    static const auto *const limits = new DeferredLimits(read_deferred_limits());
    return *limits;
}

bool PendingDeallocations::push(const Entry &entry) {
    std::lock_guard lock(mutex_);
    entries_.push_back(entry);
    bytes_ += entry.bytes;
    return sections_ == 0 && passed_locked();
}

void PendingDeallocations::enter() {
    std::lock_guard lock(mutex_);
    ++sections_;
}

bool PendingDeallocations::leave(bool *ret_flush) {
    std::lock_guard lock(mutex_);
    if (sections_ == 0) {
        return false;
    }
    --sections_;
    *ret_flush = sections_ == 0 && passed_locked();
    return true;
}

uint64_t PendingDeallocations::sections() const {
    std::lock_guard lock(mutex_);
    return sections_;
}

std::vector<PendingDeallocations::Entry> PendingDeallocations::take() {
    std::lock_guard lock(mutex_);
    bytes_ = 0;
    return std::exchange(entries_, {});
}

uint64_t PendingDeallocations::count() const {
    std::lock_guard lock(mutex_);
    return entries_.size();
}

uint64_t PendingDeallocations::bytes() const {
    std::lock_guard lock(mutex_);
    return bytes_;
}

bool PendingDeallocations::passed_locked() const {
    const uint64_t total = total_;
    return entries_.size() > limits_.count ||
           (total != 0 && static_cast<double>(bytes_) > limits_.ratio * static_cast<double>(total));
}

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

// In a child forked from within the scope, a missing thread may hold the lock.
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
    if (this_thread.returning != 0 || observe::NoProgramCode::is_in_force() ||
        observe::is_forked_child()) {
        return false;
    }
    const Uncancelled uncancelled;
    std::unique_lock lock(mutex_);
    const uint64_t last = begun_; // excludes threads that run out of memory later
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

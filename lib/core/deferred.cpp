#include "core/deferred.h"

#include "observe/log.h"
#include "observe/process.h"

#include <charconv>
#include <string>
#include <string_view>
#include <utility>

namespace emm::core {
namespace {

// Reads a number from 0 to `most` that takes the whole text; otherwise warns and keeps *ret.
template <typename Number>
void read_number(const char *name, Number most, const char *expected, Number *ret) {
    const std::string_view text = observe::environment(name);
    if (text.empty()) {
        return;
    }
    Number number{};
    const char *const last = text.data() + text.size();
    const auto [end, error] = std::from_chars(text.data(), last, number);
    if (error != std::errc() || end != last || text.front() == '-' || !(number <= most)) {
        observe::log(EMM_LOG_WARN, "{}: expected {}, found '{}'; the default is used", name,
                     expected, text);
        return;
    }
    *ret = number;
}

} // namespace

DeferredLimits read_deferred_limits() {
    DeferredLimits limits;
    read_number("EMM_MAX_PENDING_DEALLOCS_COUNT", UINT64_MAX, "a whole number from 0 to 2^64 - 1",
                &limits.count);
    read_number("EMM_MAX_PENDING_DEALLOCS_RATIO", 1.0, "a number from 0 to 1", &limits.ratio);
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

} // namespace emm::core

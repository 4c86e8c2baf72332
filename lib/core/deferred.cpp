#include "core/deferred.h"

#include "observe/environment.h"
#include "observe/log.h"

#include <cstdlib>
#include <string>
#include <utility>

namespace emm::core {
namespace {

// Reads a number that is 0 or more and takes the whole text; otherwise warns and keeps *ret.
void read_number(const char *name, double *ret) {
    const std::string text(observe::environment(name));
    if (text.empty()) {
        return;
    }
    char *end = nullptr;
    const double number = std::strtod(text.c_str(), &end);
    if (*end != '\0' || !(number >= 0)) {
        observe::log(EMM_LOG_WARN, std::string(name) + ": expected a number, 0 or more, found '" +
                                       text + "'; the default is used");
        return;
    }
    *ret = number;
}

} // namespace

DeferredLimits read_deferred_limits() {
    DeferredLimits limits;
    double count = static_cast<double>(limits.count);
    read_number("EMM_MAX_PENDING_DEALLOCS_COUNT", &count);
    read_number("EMM_MAX_PENDING_DEALLOCS_RATIO", &limits.ratio);
    limits.count = count < 1e18 ? static_cast<uint64_t>(count) : UINT64_MAX;
    return limits;
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

bool PendingDeallocations::in_section() const {
    std::lock_guard lock(mutex_);
    return sections_ != 0;
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

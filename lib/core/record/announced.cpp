#include "core/record/announced.h"

namespace emm::core {

void Announced::add(const Notice &notice) {
    const std::lock_guard lock(mutex_);
    if (notice.notice != EMM_STREAM_REGISTERED || notices_.count(notice) == 0) {
        notices_.insert(notice);
    }
}

void Announced::set_access(int32_t device, uint32_t flags) {
    const std::lock_guard lock(mutex_);
    if (flags == EMM_ACCESS_NONE) {
        accesses_.erase(device);
    } else {
        accesses_[device] = flags;
    }
}

bool Announced::remove(const Notice &notice) noexcept {
    const std::lock_guard lock(mutex_);
    const auto found = notices_.find(notice);
    if (found == notices_.end()) {
        return false;
    }
    notices_.erase(found);
    return true;
}

void Announced::set_options(Options options) noexcept {
    const std::lock_guard lock(mutex_);
    options_.swap(options);
}

uint32_t Announced::access(int32_t device) const {
    const std::lock_guard lock(mutex_);
    const auto found = accesses_.find(device);
    return found == accesses_.end() ? EMM_ACCESS_NONE : found->second;
}

Announced::Accesses Announced::accesses() const {
    const std::lock_guard lock(mutex_);
    return accesses_;
}

Announced::Options Announced::options() const {
    const std::lock_guard lock(mutex_);
    return options_;
}

std::vector<Announced::Notice> Announced::notices() const {
    const std::lock_guard lock(mutex_);
    return {notices_.begin(), notices_.end()};
}

} // namespace emm::core

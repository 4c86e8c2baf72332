#include "core/record/announced.h"

namespace emm::core {

void Announced::add_stream(emm_stream stream) {
    const std::lock_guard lock(mutex_);
    streams_.insert(stream);
}

void Announced::add_capture(emm_stream stream) {
    const std::lock_guard lock(mutex_);
    captures_.insert(stream);
}

void Announced::set_access(int32_t device, uint32_t flags) {
    const std::lock_guard lock(mutex_);
    if (flags == EMM_ACCESS_NONE) {
        accesses_.erase(device);
    } else {
        accesses_[device] = flags;
    }
}

void Announced::remove_stream(emm_stream stream) noexcept {
    const std::lock_guard lock(mutex_);
    streams_.erase(stream);
}

void Announced::remove_capture(emm_stream stream) noexcept {
    const std::lock_guard lock(mutex_);
    const auto found = captures_.find(stream);
    if (found != captures_.end()) {
        captures_.erase(found);
    }
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

std::vector<Announced::Notice> Announced::notices() const {
    const std::lock_guard lock(mutex_);
    std::vector<Notice> all;
    for (const emm_stream stream : streams_) {
        all.push_back({stream, EMM_STREAM_REGISTERED});
    }
    for (const emm_stream stream : captures_) {
        all.push_back({stream, EMM_STREAM_CAPTURE_BEGINS});
    }
    return all;
}

} // namespace emm::core

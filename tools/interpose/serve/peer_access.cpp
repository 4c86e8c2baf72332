#include "peer_access.h"

#include <algorithm>

namespace emm::run {
namespace {

uint32_t widest(const std::map<CUcontext, uint32_t> &holders) {
    uint32_t access = EMM_ACCESS_NONE;
    for (const auto &[by, its] : holders) {
        access = std::max(access, its);
    }
    return access;
}

static_assert(EMM_ACCESS_NONE < EMM_ACCESS_READ && EMM_ACCESS_READ < EMM_ACCESS_READ_WRITE);

} // namespace

std::vector<DeviceAccess> PeerAccess::set(emm_context *memory, int32_t device, CUcontext by,
                                          uint32_t access) {
    std::vector<DeviceAccess> changed;
    changed.reserve(1);
    const std::lock_guard lock(mutex_);
    Holders &holders = holders_[{memory, device}];
    const uint32_t before = widest(holders);
    if (access != EMM_ACCESS_NONE) {
        holders[by] = access;
    } else {
        holders.erase(by);
    }
    const uint32_t after = widest(holders);
    if (after != before) {
        changed.push_back({memory, device, after});
    }
    if (holders.empty()) {
        holders_.erase({memory, device});
    }
    return changed;
}

std::vector<DeviceAccess> PeerAccess::end(CUcontext by) {
    std::vector<DeviceAccess> changed;
    const std::lock_guard lock(mutex_);
    changed.reserve(holders_.size());
    for (auto &[key, holders] : holders_) {
        const uint32_t before = widest(holders);
        holders.erase(by);
        if (const uint32_t after = widest(holders); after != before) {
            changed.push_back({key.memory, key.device, after});
        }
    }
    std::erase_if(holders_, [](const auto &each) { return each.second.empty(); });
    return changed;
}

void PeerAccess::forget(const emm_context *memory) {
    const std::lock_guard lock(mutex_);
    std::erase_if(holders_, [&](const auto &each) { return each.first.memory == memory; });
}

bool PeerAccess::holds_any(CUcontext by) const {
    const std::lock_guard lock(mutex_);
    return std::any_of(holders_.begin(), holders_.end(),
                       [&](const auto &each) { return each.second.count(by) != 0; });
}

} // namespace emm::run

#include "common/exports.h"

#include <algorithm>
#include <cstring>
#include <utility>

namespace emm::common {
namespace {

bool is_same(const emm_ipc_handle &a, const emm_ipc_handle &b) {
    return a.offset == b.offset && a.size == b.size &&
           std::memcmp(a.handle, b.handle, sizeof a.handle) == 0;
}

} // namespace

void Exports::note(emm_deviceptr base, const emm_ipc_handle &handle) {
    std::lock_guard lock(mutex_);
    const auto [place, is_new] = shared_.try_emplace(base);
    try {
        place->second.exports.push_back(handle);
    } catch (...) {
        if (is_new) {
            shared_.erase(place);
        }
        throw;
    }
    any_ = true;
}

Exports::Entry Exports::end(const emm_ipc_handle &handle) {
    std::lock_guard lock(mutex_);
    for (auto each = shared_.begin(); each != shared_.end(); ++each) {
        auto &exports = each->second.exports;
        const auto found = std::find_if(exports.begin(), exports.end(),
                                        [&](const auto &one) { return is_same(one, handle); });
        if (found == exports.end()) {
            continue;
        }
        exports.erase(found);
        if (!exports.empty()) {
            return {};
        }
        Entry freed = std::move(each->second.freed);
        shared_.erase(each);
        any_ = !shared_.empty();
        return freed;
    }
    return {};
}

bool Exports::hold_back(Entry &entry) {
    if (!any_) {
        return false;
    }
    std::lock_guard lock(mutex_);
    const auto found = shared_.find(entry.key());
    if (found == shared_.end()) {
        return false;
    }
    found->second.freed = std::move(entry);
    entry = {};
    return true;
}

Exports::Entry Exports::take_held_back() noexcept {
    std::lock_guard lock(mutex_);
    for (auto &[ptr, shared] : shared_) {
        if (!shared.freed.empty()) {
            return std::exchange(shared.freed, {});
        }
    }
    shared_.clear();
    any_ = false;
    return {};
}

} // namespace emm::common

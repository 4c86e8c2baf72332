#include "common/allocations.h"

#include "common/driver.h"

#include <algorithm>
#include <iterator>
#include <utility>

namespace emm::common {

LiveAllocations::Entry LiveAllocations::make_entry(size_t size) {
    Allocations one;
    one.emplace(0, size);
    return one.extract(one.begin());
}

void LiveAllocations::add(Entry entry, emm_deviceptr ptr) noexcept {
    entry.key() = ptr;
    std::lock_guard lock(mutex_);
    ++stats_.allocations;
    insert_locked(std::move(entry));
    const uint64_t reserved = stats_.live_bytes + stats_.pending_bytes;
    stats_.peak_live_bytes = std::max(stats_.peak_live_bytes, stats_.live_bytes);
    stats_.peak_reserved_bytes = std::max(stats_.peak_reserved_bytes, reserved);
}

LiveAllocations::Entry LiveAllocations::take(emm_deviceptr ptr, size_t size) noexcept {
    std::lock_guard lock(mutex_);
    const auto found = live_.find(ptr);
    if (found == live_.end() || (size != 0 && size != found->second)) {
        return {};
    }
    ++stats_.frees;
    stats_.live_bytes -= found->second;
    stats_.pending_bytes += found->second;
    return live_.extract(found);
}

void LiveAllocations::refuse_free(const char *plugin, emm_deviceptr ptr, size_t size) const {
    emm_block_info info = {};
    if (!find(ptr, info) || info.base != ptr) {
        refuse(EMM_E_NOT_OWNED,
               "%s: memfree of 0x%llx: no live allocation of this manager begins there", plugin,
               ptr);
    }
    refuse(EMM_E_INVALID_VALUE,
           "%s: memfree of 0x%llx as %zu bytes, which was allocated as %llu; it was not freed",
           plugin, ptr, size, static_cast<unsigned long long>(info.size));
}

void LiveAllocations::put_back(Entry entry) noexcept {
    std::lock_guard lock(mutex_);
    --stats_.frees;
    stats_.pending_bytes -= entry.mapped();
    insert_locked(std::move(entry));
}

LiveAllocations::Allocations LiveAllocations::take_all() noexcept {
    std::lock_guard lock(mutex_);
    stats_.pending_bytes += std::exchange(stats_.live_bytes, 0);
    Allocations all = std::exchange(live_, {});
    all.merge(refused_);
    has_refused_ = !refused_.empty();
    return all;
}

void LiveAllocations::keep_refused(Entry entry) noexcept {
    std::lock_guard lock(mutex_);
    refused_.insert(std::move(entry));
    has_refused_ = true;
}

LiveAllocations::Entry LiveAllocations::take_refused() noexcept {
    if (!has_refused_.load(std::memory_order_relaxed)) {
        return {};
    }
    std::lock_guard lock(mutex_);
    Entry entry = refused_.empty() ? Entry() : refused_.extract(refused_.begin());
    has_refused_ = !refused_.empty();
    return entry;
}

void LiveAllocations::returned(size_t size) noexcept {
    std::lock_guard lock(mutex_);
    stats_.pending_bytes -= size;
}

void LiveAllocations::failed() noexcept {
    std::lock_guard lock(mutex_);
    ++stats_.failures;
}

bool LiveAllocations::find(emm_deviceptr ptr, emm_block_info &ret_info) const noexcept {
    std::lock_guard lock(mutex_);
    const auto after = live_.upper_bound(ptr);
    if (after == live_.begin()) {
        return false;
    }
    const auto &[base, size] = *std::prev(after);
    if (ptr - base >= size) {
        return false;
    }
    ret_info.kind = EMM_KIND_DEVICE;
    ret_info.base = base;
    ret_info.size = size;
    return true;
}

emm_block_info LiveAllocations::at(emm_deviceptr ptr, const char *plugin, int32_t device) const {
    emm_block_info info = {};
    if (!find(ptr, info)) {
        refuse(EMM_E_NOT_OWNED, "0x%llx is not in a live allocation of %s on device %d", ptr,
               plugin, static_cast<int>(device));
    }
    info.struct_size = sizeof info;
    info.device = device;
    return info;
}

void LiveAllocations::fill(emm_stats &stats) const noexcept {
    std::lock_guard lock(mutex_);
    stats = stats_;
    stats.struct_size = sizeof stats;
    stats.live_count = live_.size();
    stats.reserved_bytes = stats_.live_bytes + stats_.pending_bytes;
}

void LiveAllocations::reset_peaks() noexcept {
    std::lock_guard lock(mutex_);
    stats_.peak_live_bytes = stats_.live_bytes;
    stats_.peak_reserved_bytes = stats_.live_bytes + stats_.pending_bytes;
}

uint64_t LiveAllocations::live_bytes() const noexcept {
    std::lock_guard lock(mutex_);
    return stats_.live_bytes;
}

// The driver gives an address out again only when it is free. So an old entry is of memory that was
// freed without emm.
void LiveAllocations::insert_locked(Entry entry) noexcept {
    const Entry stale = live_.extract(entry.key());
    if (!stale.empty()) {
        stats_.live_bytes -= stale.mapped();
    }
    stats_.live_bytes += entry.mapped();
    live_.insert(std::move(entry));
}

} // namespace emm::common

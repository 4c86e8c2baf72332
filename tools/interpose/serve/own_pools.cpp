#include "own_pools.h"

#include "result.h"

#include <algorithm>
#include <cstring>
#include <string>
#include <string_view>

namespace emm::run {

[[gnu::tls_model("initial-exec")]] constinit thread_local OwnPools::Latest OwnPools::latest_;

// --- decisions -----------------------------------------------------------------------------------

bool is_worth_serving(uint64_t capabilities) {
    constexpr uint64_t wanted = EMM_PLUGIN_CACHES | EMM_PLUGIN_STREAM_ORDERED;
    return (capabilities & (wanted | EMM_PLUGIN_NEEDS_CURRENT)) == wanted;
}

bool is_plain(const CUmemPoolProps &properties) {
    CUmemPoolProps plain = {};
    plain.allocType = CU_MEM_ALLOCATION_TYPE_PINNED;
    plain.location.type = CU_MEM_LOCATION_TYPE_DEVICE;
    plain.location.id = properties.location.id;
    return std::memcmp(&plain, &properties, sizeof plain) == 0;
}

void PoolSettings::set(CUmemPool_attribute attribute, const void *value) {
    int is_allowed = 0;
    switch (attribute) {
    case CU_MEMPOOL_ATTR_RELEASE_THRESHOLD:
        std::memcpy(&release_threshold, value, sizeof release_threshold);
        return;
    case CU_MEMPOOL_ATTR_REUSE_FOLLOW_EVENT_DEPENDENCIES:
    case CU_MEMPOOL_ATTR_REUSE_ALLOW_OPPORTUNISTIC:
    case CU_MEMPOOL_ATTR_REUSE_ALLOW_INTERNAL_DEPENDENCIES:
        std::memcpy(&is_allowed, value, sizeof is_allowed);
        refused_reuse &= ~(1u << attribute);
        refused_reuse |= unsigned(is_allowed == 0) << attribute;
        return;
    default:
        return;
    }
}

uint64_t high_since(uint64_t before, uint64_t highest, uint64_t now) {
    return highest > before ? highest : now;
}

namespace {

bool allow_plugin(const PoolSettings &settings, CUdevice device) {
    size_t total = 0;
    return emm_get_device_total(device, &total) >= 0 && settings.allow_plugin(total);
}

emm_stats statistics(emm_context *manager) {
    auto stats = sized<emm_stats>();
    return emm_get_stats(manager, &stats) < 0 ? emm_stats() : stats;
}

// Like a pool of the driver's, a manager takes no memory at first.
const char *options_of_manager() {
    auto info = sized<emm_plugin_info>();
    const emm_option *option = emm_get_plugin(&info) < 0 ? nullptr : info.options;
    while (option && option->name && std::string_view(option->name) != "initial") {
        option++;
    }
    return option && option->name ? "initial=0" : nullptr;
}

} // namespace

// --- the program's pools -------------------------------------------------------------------------

void OwnPools::made(CUmemoryPool pool, const CUmemPoolProps &properties) noexcept {
    auto info = sized<emm_plugin_info>();
    if (!is_plain(properties) || emm_get_plugin(&info) < 0 ||
        !is_worth_serving(info.capabilities)) {
        return;
    }
    try {
        const std::lock_guard lock(mutex_);
        pools_[pool] = {++last_id_, properties.location.id, {}, {}};
        contexts_.begin_epoch(); // another pool may have had the handle
    } catch (const std::bad_alloc &) {
    }
}

void OwnPools::set(CUmemoryPool handle, CUmemPool_attribute attribute, const void *value) {
    const std::lock_guard lock(mutex_);
    const auto found = pools_.find(handle);
    if (found == pools_.end()) {
        return;
    }
    Pool &pool = found->second;
    pool.settings.set(attribute, value);
    set_leaving(pool.id, !allow_plugin(pool.settings, pool.device));
    each_of(pool.id, [&](emm_context *manager, Manager &its) {
        if (attribute == CU_MEMPOOL_ATTR_USED_MEM_HIGH) {
            its.live_before = statistics(manager).peak_live_bytes;
        } else if (attribute == CU_MEMPOOL_ATTR_RESERVED_MEM_HIGH) {
            its.reserved_before = statistics(manager).peak_reserved_bytes;
        }
    });
}

void OwnPools::set_access(CUmemoryPool pool, CUdevice peer, uint32_t access) {
    const std::lock_guard lock(mutex_);
    const auto found = pools_.find(pool);
    if (found == pools_.end() || found->second.device == peer) {
        return;
    }
    found->second.access[peer] = access;
    each_of(found->second.id, [&](emm_context *manager, Manager &its) {
        its.access[peer] = access;
        emm_set_peer_access(manager, peer, access);
    });
}

uint64_t OwnPools::id_of(CUmemoryPool pool) {
    const std::lock_guard lock(mutex_);
    const auto found = pools_.find(pool);
    return found == pools_.end() ? 0 : found->second.id;
}

void OwnPools::ended(uint64_t id) {
    const std::lock_guard lock(mutex_);
    std::erase_if(pools_, [&](const auto &each) { return each.second.id == id; });
    each_of(id, [](emm_context *, Manager &its) { its.ended = true; });
    set_leaving(id, true);
}

// --- their managers ------------------------------------------------------------------------------

template <class Visit> void OwnPools::each_of(uint64_t pool, Visit visit) {
    for (auto &[manager, its] : managers_) {
        if (its.pool == pool) {
            visit(manager, its);
        }
    }
}

// If no manager can be had, the driver serves this allocation.
emm_context *OwnPools::find_manager(emm_context *context, CUmemoryPool pool) {
    const uint64_t now = contexts_.epoch(); // from before the look
    const std::lock_guard lock(mutex_);
    const auto found = pools_.find(pool);
    const bool is_served = found != pools_.end() &&
                           found->second.device == device_of_context(context) &&
                           allow_plugin(found->second.settings, found->second.device);
    emm_context *const manager = is_served ? take_manager(context, found->second) : nullptr;
    if (manager || !is_served) {
        latest_ = {pool, context, manager, now};
    }
    return manager;
}

emm_context *OwnPools::take_manager(emm_context *context, const Pool &pool) {
    for (const auto &[manager, its] : managers_) {
        if (its.context == context && its.pool == pool.id) {
            return manager;
        }
    }
    emm_context *const unused = find_unused(context);
    emm_context *const manager = unused ? unused : make_manager(context);
    if (!manager) {
        return nullptr;
    }
    Manager &its = managers_[manager];
    for (const auto &[peer, access] : its.access) {
        if (pool.access.count(peer) == 0) {
            emm_set_peer_access(manager, peer, EMM_ACCESS_NONE);
        }
    }
    for (const auto &[peer, access] : pool.access) {
        emm_set_peer_access(manager, peer, access);
    }
    const emm_stats stats = statistics(manager);
    its = {context, pool.id, false, pool.access, stats.peak_live_bytes, stats.peak_reserved_bytes};
    note_leaving();
    return manager;
}

// A manager whose pool has ended, with all of its memory freed. Managers are not retired: another
// thread's free may still be on its way out of the plugin.
emm_context *OwnPools::find_unused(emm_context *context) {
    for (const auto &[manager, its] : managers_) {
        auto stats = sized<emm_stats>();
        if (its.ended && its.context == context && emm_get_stats(manager, &stats) >= 0 &&
            stats.live_count == 0) {
            return manager;
        }
    }
    return nullptr;
}

emm_context *OwnPools::make_manager(emm_context *context) {
    emm_context *made = nullptr;
    return emm_context_named(context, "cuMemPoolCreate#", options_of_manager(), &made) < 0 ? nullptr
                                                                                           : made;
}

void OwnPools::set_leaving(uint64_t pool, bool leaving) {
    each_of(pool, [&](emm_context *, Manager &its) { its.leaving = leaving; });
    note_leaving();
    contexts_.begin_epoch();
}

void OwnPools::note_leaving() {
    any_leaving_ = std::any_of(managers_.begin(), managers_.end(),
                               [](const auto &each) { return each.second.leaving; });
}

emm_context *OwnPools::leaving_after(emm_context *manager) {
    const std::lock_guard lock(mutex_);
    auto its = managers_.upper_bound(manager);
    while (its != managers_.end() && !its->second.leaving) {
        ++its;
    }
    return its == managers_.end() ? nullptr : its->first;
}

void OwnPools::trim(emm_context *manager) noexcept {
    emm_trim(manager, 0, nullptr);
    const bool is_empty = statistics(manager).reserved_bytes == 0;
    const std::lock_guard lock(mutex_);
    const auto its = managers_.find(manager);
    if (its != managers_.end()) {
        its->second.leaving = its->second.leaving && !is_empty;
    }
    note_leaving();
}

void OwnPools::trim_leaving() noexcept {
    const auto kept = contexts_.keep();
    for (emm_context *each = nullptr; (each = leaving_after(each));) {
        trim(each);
    }
}

// A trim costs more than a free, so only the last free trims.
void OwnPools::freed_to(emm_context *manager) noexcept {
    const auto kept = contexts_.keep();
    {
        const std::lock_guard lock(mutex_);
        const auto its = managers_.find(manager);
        if (its == managers_.end() || !its->second.leaving) {
            return;
        }
    }
    if (statistics(manager).live_count == 0) {
        trim(manager);
    }
}

void OwnPools::forget(const emm_context *context) {
    const std::lock_guard lock(mutex_);
    std::erase_if(managers_, [&](const auto &each) { return each.second.context == context; });
    note_leaving();
}

// --- notices about them --------------------------------------------------------------------------

std::vector<emm_context *> OwnPools::all_managers() {
    std::vector<emm_context *> all;
    const std::lock_guard lock(mutex_);
    for (const auto &[manager, its] : managers_) {
        all.push_back(manager);
    }
    return all;
}

std::vector<emm_context *> OwnPools::managers_of(CUmemoryPool pool) {
    std::vector<emm_context *> found;
    const uint64_t id = id_of(pool);
    const std::lock_guard lock(mutex_);
    each_of(id, [&](emm_context *manager, Manager &) { found.push_back(manager); });
    return found;
}

CUmemoryPool OwnPools::pool_of(emm_context *manager) {
    const std::lock_guard lock(mutex_);
    const auto its = managers_.find(manager);
    const auto found = std::find_if(pools_.begin(), pools_.end(), [&](const auto &each) {
        return its != managers_.end() && each.second.id == its->second.pool;
    });
    return found == pools_.end() ? nullptr : found->first;
}

emm_stats OwnPools::stats_of(emm_context *manager) {
    emm_stats stats = statistics(manager);
    const std::lock_guard lock(mutex_);
    const auto its = managers_.find(manager);
    if (its != managers_.end()) {
        uint64_t &live = stats.peak_live_bytes, &reserved = stats.peak_reserved_bytes;
        live = high_since(its->second.live_before, live, stats.live_bytes);
        reserved = high_since(its->second.reserved_before, reserved, stats.reserved_bytes);
    }
    return stats;
}

} // namespace emm::run

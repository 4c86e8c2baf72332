#include "pools.h"

#include "server.h"

#include <algorithm>
#include <cstring>

namespace emm::run {

void Pools::set(CUdevice device, CUmemoryPool pool) {
    CUdevice its_device = 0;
    const bool is_own = !is_default(pool, its_device) || its_device != device;
    const std::lock_guard lock(mutex_);
    if (is_own) {
        own_[device] = pool;
    } else {
        own_.erase(device);
    }
    any_own_.store(!own_.empty(), std::memory_order_release);
}

void Pools::forget(CUmemoryPool pool) {
    const std::lock_guard lock(mutex_);
    std::erase_if(own_, [&](const auto &each) { return each.second == pool; });
    any_own_.store(!own_.empty(), std::memory_order_release);
}

bool Pools::has_own(emm_context *context) {
    const std::lock_guard lock(mutex_);
    return own_.count(device_of_context(context)) != 0;
}

void Pools::set_access(CUdevice device, CUdevice peer, uint32_t access) {
    const std::lock_guard lock(mutex_);
    access_[device][peer] = access;
}

std::map<CUdevice, uint32_t> Pools::access_of(CUdevice device) {
    const std::lock_guard lock(mutex_);
    const auto found = access_.find(device);
    return found == access_.end() ? std::map<CUdevice, uint32_t>() : found->second;
}

uint64_t idle_to_keep(uint64_t keep_reserved, uint64_t live) {
    return keep_reserved > live ? keep_reserved - live : 0;
}

void context_begins(emm_context *context) {
    for (const auto &[peer, access] : server().pools.access_of(device_of_context(context))) {
        server().set_peer_access(context, peer, nullptr, access);
    }
}

void Pools::find_defaults() {
    auto info = sized<emm_driver_info>();
    defaults_.resize(emm_get_driver(&info) >= 0 ? info.device_count : 0);
    for (size_t device = 0; device < defaults_.size(); device++) {
        if (driver_.cuDeviceGetDefaultMemPool(&defaults_[device], CUdevice(device)) !=
            CUDA_SUCCESS) {
            defaults_[device] = nullptr;
        }
    }
}

bool Pools::is_default(CUmemoryPool pool, CUdevice &ret_device) {
    std::call_once(found_, [this] { find_defaults(); });
    const auto found = std::find(defaults_.begin(), defaults_.end(), pool);
    if (!pool || found == defaults_.end()) {
        return false;
    }
    ret_device = CUdevice(found - defaults_.begin());
    return true;
}

namespace {

// The contexts that are served on the device of a default pool; of another pool none.
std::vector<emm_context *> contexts_of_pool(const Turn &turn, CUmemoryPool pool,
                                            CUdevice &ret_device) {
    return turn.is_programs() && server().pools.is_default(pool, ret_device)
               ? server().contexts.all_on(ret_device)
               : std::vector<emm_context *>();
}

emm_stats stats_of(emm_context *context) {
    auto stats = sized<emm_stats>();
    return emm_get_stats(context, &stats) < 0 ? emm_stats() : stats;
}

CUresult device_set_mem_pool(CUdevice device, CUmemoryPool pool) {
    const Turn turn;
    const CUresult result =
        ask_driver<&device_set_mem_pool>(served_cuDeviceSetMemPool, device, pool);
    if (turn.is_programs() && result == CUDA_SUCCESS) {
        server().pools.set(device, pool);
    }
    return result;
}

// Of CUDA 13, for host memory too: then it has nothing to do with a device.
CUresult mem_set_mem_pool(CUmemLocation *location, CUmemAllocationType type, CUmemoryPool pool) {
    const Turn turn;
    const CUresult result =
        ask_driver<&mem_set_mem_pool>(served_cuMemSetMemPool, location, type, pool);
    if (turn.is_programs() && result == CUDA_SUCCESS && type == CU_MEM_ALLOCATION_TYPE_PINNED &&
        location->type == CU_MEM_LOCATION_TYPE_DEVICE) {
        server().pools.set(location->id, pool);
    }
    return result;
}

CUresult pool_destroy(CUmemoryPool pool) {
    const Turn turn;
    if (turn.is_programs()) {
        server().pools.forget(pool); // first: another thread may get the handle
    }
    return ask_driver<&pool_destroy>(served_cuMemPoolDestroy, pool);
}

// The bytes that the plugin has for the device; false: the attribute says nothing of them. Of the
// highest values since a reset emm keeps none.
bool bytes_of(const emm_stats &stats, CUmemPool_attribute attribute, cuuint64_t &ret_bytes) {
    switch (attribute) {
    case CU_MEMPOOL_ATTR_USED_MEM_CURRENT:
        ret_bytes = stats.live_bytes;
        return true;
    case CU_MEMPOOL_ATTR_USED_MEM_HIGH:
        ret_bytes = stats.peak_live_bytes;
        return true;
    case CU_MEMPOOL_ATTR_RESERVED_MEM_CURRENT:
        ret_bytes = stats.reserved_bytes;
        return true;
    case CU_MEMPOOL_ATTR_RESERVED_MEM_HIGH:
        ret_bytes = stats.peak_reserved_bytes;
        return true;
    default:
        return false;
    }
}

// The sum of what several contexts had at most may be more than they had at one time.
CUresult pool_get_attribute(CUmemoryPool pool, CUmemPool_attribute attribute, void *ret_value) {
    const Turn turn;
    CUdevice device = 0;
    const auto kept = server().contexts.keep();
    const std::vector<emm_context *> contexts = contexts_of_pool(turn, pool, device);
    cuuint64_t sum = 0, bytes = 0;
    bool is_told = !contexts.empty() && ret_value;
    for (size_t i = 0; is_told && i < contexts.size(); i++, sum += bytes) {
        is_told = bytes_of(stats_of(contexts[i]), attribute, bytes);
    }
    if (!is_told) {
        return ask_driver<&pool_get_attribute>(served_cuMemPoolGetAttribute, pool, attribute,
                                               ret_value);
    }
    std::memcpy(ret_value, &sum, sizeof sum);
    return CUDA_SUCCESS;
}

void trim_all(const std::vector<emm_context *> &contexts, uint64_t keep_reserved) {
    uint64_t live = 0;
    for (emm_context *context : contexts) {
        emm_trim(context, SIZE_MAX, nullptr); // finds what is complete
        live += stats_of(context).live_bytes;
    }
    uint64_t left = idle_to_keep(keep_reserved, live);
    for (emm_context *context : contexts) {
        emm_trim(context, left, nullptr);
        const emm_stats stats = stats_of(context);
        left = idle_to_keep(left, idle_to_keep(stats.reserved_bytes, stats.live_bytes));
    }
}

CUresult pool_trim_to(CUmemoryPool pool, size_t keep_bytes) {
    const Turn turn;
    CUdevice device = 0;
    {
        const auto kept = server().contexts.keep();
        trim_all(contexts_of_pool(turn, pool, device), keep_bytes);
    }
    return ask_driver<&pool_trim_to>(served_cuMemPoolTrimTo, pool, keep_bytes);
}

uint32_t access_of(const CUmemAccessDesc &access) {
    return access.flags == CU_MEM_ACCESS_FLAGS_PROT_READWRITE ? EMM_ACCESS_READ_WRITE
           : access.flags == CU_MEM_ACCESS_FLAGS_PROT_READ    ? EMM_ACCESS_READ
                                                              : EMM_ACCESS_NONE;
}

CUresult pool_set_access(CUmemoryPool pool, const CUmemAccessDesc *access, size_t count) {
    const Turn turn;
    const CUresult result =
        ask_driver<&pool_set_access>(served_cuMemPoolSetAccess, pool, access, count);
    CUdevice device = 0;
    if (result != CUDA_SUCCESS || !turn.is_programs() || !server().pools.is_default(pool, device)) {
        return result;
    }
    const auto kept = server().contexts.keep();
    for (size_t i = 0; i < count; i++) {
        const CUmemLocation peer = access[i].location;
        if (peer.type != CU_MEM_LOCATION_TYPE_DEVICE || peer.id == device) {
            continue;
        }
        server().pools.set_access(device, peer.id, access_of(access[i]));
        for (emm_context *context : server().contexts.all_on(device)) {
            server().set_peer_access(context, peer.id, nullptr, access_of(access[i]));
        }
    }
    return result;
}

} // namespace

void serve_pools(Entries &entries) {
    entries.at[served_cuDeviceSetMemPool] = entry_of<&device_set_mem_pool>();
    entries.at[served_cuMemSetMemPool] = entry_of<&mem_set_mem_pool>();
    entries.at[served_cuMemPoolDestroy] = entry_of<&pool_destroy>();
    entries.at[served_cuMemPoolGetAttribute] = entry_of<&pool_get_attribute>();
    entries.at[served_cuMemPoolSetAccess] = entry_of<&pool_set_access>();
    entries.at[served_cuMemPoolTrimTo] = entry_of<&pool_trim_to>();
}

} // namespace emm::run

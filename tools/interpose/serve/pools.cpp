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

std::vector<CUdevice> Pools::forget(CUmemoryPool pool) {
    std::vector<CUdevice> devices;
    const std::lock_guard lock(mutex_);
    for (const auto &[device, own] : own_) {
        if (own == pool) {
            devices.push_back(device);
        }
    }
    for (const CUdevice device : devices) {
        own_.erase(device);
    }
    any_own_.store(!own_.empty(), std::memory_order_release);
    return devices;
}

CUmemoryPool Pools::find_own(emm_context *context) {
    const std::lock_guard lock(mutex_);
    const auto found = own_.find(device_of_context(context));
    return found == own_.end() ? nullptr : found->second;
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

// The contexts that serve a pool. For a device's default pool: all contexts on the device. For a
// pool that the program has created: emm's own pools behind it.
std::vector<emm_context *> managers_of_pool(CUmemoryPool pool) {
    CUdevice device = 0;
    return server().pools.is_default(pool, device) ? server().contexts.all_on(device)
                                                   : server().own_pools.managers_of(pool);
}

emm_stats stats_of(emm_context *manager) {
    return server().own_pools.stats_of(manager);
}

void device_pool_set(CUdevice device, CUmemoryPool pool) {
    server().pools.set(device, pool);
}

// The pool of a location, of CUDA 13. A location may also be host memory, which has nothing to do
// with a device.
void location_pool_set(CUmemLocation *location, CUmemAllocationType type, CUmemoryPool pool) {
    if (type == CU_MEM_ALLOCATION_TYPE_PINNED && location->type == CU_MEM_LOCATION_TYPE_DEVICE) {
        server().pools.set(location->id, pool);
    }
}

// The plugin's bytes for the device; false: the attribute does not ask for them. emm keeps no
// highest values since a reset.
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

// The driver's own bytes in the pool: none in a default pool that emm serves. False: the driver has
// not answered.
bool driver_bytes_of(CUmemoryPool pool, CUmemPool_attribute attribute, cuuint64_t &ret_bytes) {
    CUdevice device = 0;
    return server().pools.is_default(pool, device) ||
           ask_driver<&cuMemPoolGetAttribute>(served_cuMemPoolGetAttribute, pool, attribute,
                                              &ret_bytes) == CUDA_SUCCESS;
}

// The peaks of several contexts may add up to more than they had at one time.
Answer pool_get_attribute(CUmemoryPool pool, CUmemPool_attribute attribute, void *ret_value) {
    server().give_back_of_ended_pools();
    const auto kept = server().contexts.keep();
    const std::vector<emm_context *> managers = managers_of_pool(pool);
    cuuint64_t sum = 0, bytes = 0;
    bool is_told = !managers.empty() && ret_value && bytes_of({}, attribute, bytes) &&
                   driver_bytes_of(pool, attribute, sum);
    for (size_t i = 0; is_told && i < managers.size(); i++, sum += bytes) {
        is_told = bytes_of(stats_of(managers[i]), attribute, bytes);
    }
    if (!is_told) {
        return {};
    }
    std::memcpy(ret_value, &sum, sizeof sum);
    return CUDA_SUCCESS;
}

// `live`: the bytes in use beside those of the contexts. Returns how much the contexts still have.
uint64_t trim_all(const std::vector<emm_context *> &contexts, uint64_t keep_reserved,
                  uint64_t live) {
    for (emm_context *context : contexts) {
        emm_trim(context, SIZE_MAX, nullptr); // finds frees that are complete
        live += stats_of(context).live_bytes;
    }
    uint64_t left = idle_to_keep(keep_reserved, live), reserved = 0;
    for (emm_context *context : contexts) {
        emm_trim(context, left, nullptr);
        const emm_stats stats = stats_of(context);
        left = idle_to_keep(left, idle_to_keep(stats.reserved_bytes, stats.live_bytes));
        reserved += stats.reserved_bytes;
    }
    return reserved;
}

Answer pool_trim_to(CUmemoryPool pool, size_t keep_bytes) {
    const auto kept = server().contexts.keep();
    cuuint64_t used = 0;
    driver_bytes_of(pool, CU_MEMPOOL_ATTR_USED_MEM_CURRENT, used);
    const uint64_t reserved = trim_all(managers_of_pool(pool), keep_bytes, used);
    return ask_driver<&cuMemPoolTrimTo>(served_cuMemPoolTrimTo, pool,
                                        keep_bytes - std::min<size_t>(keep_bytes, reserved));
}

uint32_t access_of(const CUmemAccessDesc &access) {
    return access.flags == CU_MEM_ACCESS_FLAGS_PROT_READWRITE ? EMM_ACCESS_READ_WRITE
           : access.flags == CU_MEM_ACCESS_FLAGS_PROT_READ    ? EMM_ACCESS_READ
                                                              : EMM_ACCESS_NONE;
}

void pool_access_set(CUmemoryPool pool, const CUmemAccessDesc *access, size_t count) {
    CUdevice device = 0;
    const bool is_default = server().pools.is_default(pool, device);
    const auto kept = server().contexts.keep();
    for (size_t i = 0; i < count; i++) {
        const CUmemLocation peer = access[i].location;
        if (peer.type != CU_MEM_LOCATION_TYPE_DEVICE) {
            continue;
        }
        if (!is_default) {
            server().own_pools.set_access(pool, peer.id, access_of(access[i]));
            continue;
        }
        if (peer.id == device) {
            continue;
        }
        server().pools.set_access(device, peer.id, access_of(access[i]));
        for (emm_context *context : server().contexts.all_on(device)) {
            server().set_peer_access(context, peer.id, nullptr, access_of(access[i]));
        }
    }
}

void pool_attribute_set(CUmemoryPool pool, CUmemPool_attribute attribute, void *value) {
    server().own_pools.set(pool, attribute, value);
}

} // namespace

void serve_pools(Entries &entries) {
    watch<served_cuDeviceSetMemPool, &device_pool_set>(entries);
    watch<served_cuMemSetMemPool, &location_pool_set>(entries);
    serve<served_cuMemPoolGetAttribute, &pool_get_attribute>(entries);
    watch<served_cuMemPoolSetAttribute, &pool_attribute_set>(entries);
    watch<served_cuMemPoolSetAccess, &pool_access_set>(entries);
    serve<served_cuMemPoolTrimTo, &pool_trim_to>(entries);
}

} // namespace emm::run

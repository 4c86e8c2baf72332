#pragma once

#include "types.h"

#include <algorithm>
#include <cstring>
#include <map>
#include <optional>
#include <set>

namespace emm::torch_backend {

// The name and options of an emm pool. The pool serves a pool of PyTorch (emm.torch.mem_pool), or
// pinned memory.
struct PoolName {
    std::string name;
    std::optional<std::string> options; // as in a spec; without them, those that the pool has

    emm_status open(emm_context *primary, emm_context **ret_pool) const {
        return emm_context_named(primary, name.c_str(), options ? options->c_str() : nullptr,
                                 ret_pool);
    }
};

inline PoolName pool_name(const char *name, const char *options) {
    return {name, options ? std::optional<std::string>(options) : std::nullopt};
}

// The names that the program has given, for every device.
class PoolNames {
public:
    void set(MempoolId_t id, PoolName name) {
        Lock guard(lock_);
        names_[id] = std::move(name);
    }

    std::optional<PoolName> find(MempoolId_t id) {
        Lock guard(lock_);
        const auto found = names_.find(id);
        return found == names_.end() ? std::nullopt : std::optional<PoolName>(found->second);
    }

private:
    std::mutex lock_;
    std::map<MempoolId_t, PoolName> names_;
};

// Lets `device` use the memory of a context of device `other`. A plugin may have no such call.
inline void let_use(DeviceIndex device, emm_context *context, DeviceIndex other) {
    const emm_status status = emm_set_peer_access(context, device, EMM_ACCESS_READ_WRITE);
    TORCH_CHECK(status >= EMM_OK || status == EMM_E_NOT_SUPPORTED, "emm cannot let device ",
                int(device), " use the memory of device ", int(other), ": ", last_words());
}

// emm's pools behind PyTorch's on one device: pools that the program names, and "torch#1",
// "torch#2" and so on, which are used again. Pools are not retired, because the device may still
// use their last freed memory, and because emm keeps the records of retired pools.
//
// emm is called without the lock: a plugin may need the lock of Python's interpreter, and a thread
// that has that one may ask for a figure.
class NamedPools {
public:
    // A pool beside `primary`, the context of `device`. Throws c10::Error with emm's words.
    emm_context *take(emm_context *primary, DeviceIndex device,
                      const std::optional<PoolName> &wanted) {
        emm_context *pool = wanted ? nullptr : take_spare();
        if (!pool) {
            pool = made(primary, wanted.value_or(PoolName{"torch#", own_options()}));
            Lock guard(lock_);
            pools_.try_emplace(pool, Pool{!wanted, {}});
        }
        try {
            let_peers_use(pool, device);
        } catch (...) {
            give(pool);
            throw;
        }
        return pool;
    }

    // No memory of the pool is live any longer.
    void give(emm_context *pool) {
        Lock guard(lock_);
        const auto found = pools_.find(pool);
        if (found != pools_.end() && found->second.is_own) {
            spare_.insert(pool);
        }
    }

    std::vector<emm_context *> all() {
        Lock guard(lock_);
        std::vector<emm_context *> all;
        for (const auto &[pool, known] : pools_) {
            all.push_back(pool);
        }
        return all;
    }

    // Lets `peer` use the memory of the present and the later pools of `device`. Throws c10::Error
    // with emm's words; then a pool may lack it until the next call.
    void add_peer(DeviceIndex peer, DeviceIndex device) {
        {
            Lock guard(lock_);
            peers_.insert(peer);
        }
        for (emm_context *pool : all()) {
            let_peers_use(pool, device);
        }
    }

private:
    struct Pool {
        bool is_own;                 // "torch#1" and so on
        std::set<DeviceIndex> peers; // that may use its memory
    };

    emm_context *take_spare() {
        Lock guard(lock_);
        return spare_.empty() ? nullptr : spare_.extract(spare_.begin()).value();
    }

    static emm_context *made(emm_context *primary, const PoolName &wanted) {
        emm_context *pool = nullptr;
        TORCH_CHECK(wanted.open(primary, &pool) >= EMM_OK, "emm cannot make the pool ", wanted.name,
                    ": ", last_words());
        return pool;
    }

    void let_peers_use(emm_context *pool, DeviceIndex device) {
        while (const std::optional<DeviceIndex> peer = missing_peer(pool)) {
            let_use(*peer, pool, device);
            Lock guard(lock_);
            pools_[pool].peers.insert(*peer);
        }
    }

    std::optional<DeviceIndex> missing_peer(emm_context *pool) {
        Lock guard(lock_);
        const std::set<DeviceIndex> &known = pools_[pool].peers;
        const auto found = std::find_if(peers_.begin(), peers_.end(),
                                        [&](DeviceIndex peer) { return known.count(peer) == 0; });
        return found == peers_.end() ? std::nullopt : std::optional<DeviceIndex>(*found);
    }

    // The plugin's option `initial` takes memory at once. Only the device's own pool does so, so
    // named pools get 0.
    static std::optional<std::string> own_options() {
        emm_plugin_info info = {};
        info.struct_size = sizeof info;
        if (emm_get_plugin(&info) >= EMM_OK) {
            for (const emm_option *option = info.options; option->name; option++) {
                if (std::strcmp(option->name, "initial") == 0) {
                    return "initial=0";
                }
            }
        }
        return std::nullopt;
    }

    std::mutex lock_;
    std::map<emm_context *, Pool> pools_;
    std::set<emm_context *> spare_;
    std::set<DeviceIndex> peers_;
};

} // namespace emm::torch_backend

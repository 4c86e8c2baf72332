#pragma once

#include "types.h"

#include <cstring>
#include <map>
#include <optional>
#include <set>

namespace emm::torch_backend {

// The name and options of a pool of emm's: behind one of PyTorch's (emm.torch.mem_pool), or behind
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

// emm's pools behind PyTorch's on one device: pools that the program names, and "torch-1",
// "torch-2" and so on, which are used again. Pools are not retired, because the device may still
// use their last freed memory, and because emm keeps the records of retired pools.
class NamedPools {
public:
    // A pool beside `primary`. Throws c10::Error with emm's words.
    emm_context *take(emm_context *primary, const std::optional<PoolName> &wanted) {
        Lock guard(lock_);
        if (wanted) {
            return made(primary, *wanted, 0);
        }
        if (spare_.empty()) {
            const std::string name = "torch-" + std::to_string(count_ + 1);
            emm_context *pool = made(primary, {name, own_options()}, count_ + 1);
            count_++;
            return pool;
        }
        return spare_.extract(spare_.begin()).mapped();
    }

    // No memory of the pool is live any longer.
    void give(emm_context *pool) {
        Lock guard(lock_);
        const auto found = pools_.find(pool);
        if (found != pools_.end() && found->second != 0) {
            spare_.emplace(found->second, pool);
        }
    }

    std::vector<emm_context *> all() {
        Lock guard(lock_);
        std::vector<emm_context *> all;
        for (const auto &[pool, number] : pools_) {
            all.push_back(pool);
        }
        return all;
    }

    // Lets `device` use the memory of the present and the later pools.
    void add_peer(DeviceIndex device) {
        Lock guard(lock_);
        peers_.insert(device);
        for (const auto &[pool, number] : pools_) {
            emm_set_peer_access(pool, device, EMM_ACCESS_READ_WRITE);
        }
    }

private:
    emm_context *made(emm_context *primary, const PoolName &wanted, size_t number) {
        emm_context *pool = nullptr;
        TORCH_CHECK(wanted.open(primary, &pool) >= EMM_OK, "emm cannot make the pool ", wanted.name,
                    ": ", last_words());
        if (pools_.emplace(pool, number).second) {
            for (DeviceIndex peer : peers_) {
                emm_set_peer_access(pool, peer, EMM_ACCESS_READ_WRITE);
            }
        }
        return pool;
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
    std::map<emm_context *, size_t> pools_; // the number of "torch-1" and so on; else 0
    std::map<size_t, emm_context *> spare_; // of these
    std::set<DeviceIndex> peers_;
    size_t count_ = 0;
};

} // namespace emm::torch_backend

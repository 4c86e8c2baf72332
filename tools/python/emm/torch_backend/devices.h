#pragma once

#include "counters.h"
#include "figures.h"
#include "named_pools.h"
#include "pools.h"

#include <array>
#include <c10/cuda/CUDAGuard.h>

namespace emm::torch_backend {

struct Device {
    std::atomic<emm_context *> context{nullptr};
    std::atomic<size_t> limit{SIZE_MAX}; // bytes that PyTorch may have allocated
    std::atomic<double> fraction{1.0};
    Counters counters;
    Pools pools;
    NamedPools named;

    // The device's own record, then its named pools. A device without calls has none, because a
    // question makes no context.
    std::vector<emm_context *> contexts() {
        std::vector<emm_context *> found;
        if (emm_context *known = context.load()) {
            found = named.all();
            found.insert(found.begin(), known);
        }
        return found;
    }

    // The named pools without a pool of PyTorch's.
    std::vector<emm_context *> unused() {
        std::vector<emm_context *> found = named.all();
        pools.each([&](MempoolId_t, const Pool &pool) {
            found.erase(std::remove(found.begin(), found.end(), pool.context_), found.end());
        });
        return found;
    }

    emm_stats stats() {
        std::vector<emm_stats> each;
        for (emm_context *known : contexts()) {
            each.push_back(stats_of(known));
        }
        return sum_of(each);
    }

    static emm_stats stats_of(emm_context *context) {
        emm_stats stats = {};
        stats.struct_size = sizeof stats;
        emm_get_stats(context, &stats);
        return stats;
    }
};

// The devices, each served by the record of its primary context.
class Devices {
public:
    Device &operator[](DeviceIndex device) { return devices_.at(size_t(device)); }
    auto begin() { return devices_.begin(); }
    auto end() { return devices_.end(); }

    // The context of a live block: its device was asked for before.
    emm_context *known_context(DeviceIndex device) {
        return devices_[size_t(device)].context.load(std::memory_order_acquire);
    }

    emm_context *context(DeviceIndex device) {
        TORCH_CHECK(device >= 0 && device < most_devices, "emm serves devices 0 to ",
                    most_devices - 1, ", not ", int(device));
        emm_context *context = known_context(device);
        if (!context) {
            TORCH_CHECK(emm_context_for_device(device, &context) >= EMM_OK,
                        "emm cannot serve device ", int(device), ": ", last_words());
            devices_[size_t(device)].context.store(context, std::memory_order_release);
        }
        return context;
    }

    // emm's pool behind one of PyTorch's, made if needed; NULL for a foreign allocator's pool.
    emm_context *pool_context(DeviceIndex device, MempoolId_t id) {
        Device &on = devices_.at(size_t(device));
        if (on.pools.wants_context(id)) {
            const RelaxedCapture relaxed;
            emm_context *made = on.named.take(context(device), device, names.find(id));
            if (!on.pools.set_context(id, made)) {
                on.named.give(made);
            }
        }
        return on.pools.context(id);
    }

    // Returns all of emm's cached memory on the device. False: there was none.
    bool trim(DeviceIndex device) { return trim(device, devices_[size_t(device)].contexts()); }

    // Returns the cached memory that no pool of PyTorch's keeps: that of named pools without a
    // user, and of the device's own.
    void empty_cache(DeviceIndex device, bool with_its_own) {
        std::vector<emm_context *> meant = devices_[size_t(device)].unused();
        if (emm_context *its_own = with_its_own ? known_context(device) : nullptr) {
            meant.push_back(its_own);
        }
        trim(device, meant);
    }

    PoolNames names;

private:
    // Waits for memory that the device may still use, as PyTorch's own allocator does.
    bool trim(DeviceIndex device, const std::vector<emm_context *> &contexts) {
        const bool is_cached = idle_bytes(contexts) != 0;
        trim_at_once(contexts);
        if (idle_bytes(contexts) != 0 && !devices_[size_t(device)].pools.capturing()) {
            c10::cuda::CUDAGuard guard(device);
            C10_CUDA_CHECK(cudaDeviceSynchronize());
            trim_at_once(contexts);
        }
        return is_cached;
    }

    static void trim_at_once(const std::vector<emm_context *> &contexts) {
        for (emm_context *context : contexts) {
            emm_trim(context, 0, nullptr);
        }
    }

    static uint64_t idle_bytes(const std::vector<emm_context *> &contexts) {
        uint64_t idle = 0;
        for (emm_context *context : contexts) {
            const emm_stats stats = Device::stats_of(context);
            idle += stats.cached_bytes + stats.pending_bytes;
        }
        return idle;
    }

    std::array<Device, most_devices> devices_;
};

} // namespace emm::torch_backend

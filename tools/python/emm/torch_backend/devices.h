#pragma once

#include "counters.h"
#include "pools.h"

#include <array>

namespace emm::torch_backend {

struct Device {
    std::atomic<emm_context *> context{nullptr};
    std::atomic<size_t> limit{SIZE_MAX}; // bytes that PyTorch may have allocated
    std::atomic<double> fraction{1.0};
    Counters counters;
    Pools pools;

    // Zeros for a device that nothing was asked of: a question makes no context.
    emm_stats stats() const {
        emm_stats stats = {};
        stats.struct_size = sizeof stats;
        if (emm_context *known = context.load()) {
            emm_get_stats(known, &stats);
        }
        return stats;
    }
};

// The devices, each served by the record of its primary context.
class Devices {
public:
    Device &operator[](DeviceIndex device) { return devices_.at(size_t(device)); }
    auto begin() { return devices_.begin(); }
    auto end() { return devices_.end(); }

    // Of what is live: its device was asked for before.
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

private:
    std::array<Device, most_devices> devices_;
};

} // namespace emm::torch_backend

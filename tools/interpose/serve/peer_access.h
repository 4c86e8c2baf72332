// Access to memory: the program gives access by pairs of contexts, and by memory pool; a plugin
// knows only devices. Any thread may call.
#pragma once

#include <emm/emm.h>

#include <cstdint>
#include <cuda.h>
#include <map>
#include <mutex>
#include <vector>

namespace emm::run {

// The access of a device to a context's memory, from all holders together.
struct DeviceAccess {
    emm_context *memory = nullptr;
    int32_t device = 0;
    uint32_t access = 0; // EMM_ACCESS_*
    bool operator==(const DeviceAccess &) const = default;
};

class PeerAccess {
public:
    // The holder of the access (`by`) is a context of that device, or NULL for the memory pool.
    // Gives the changes for the device: none, as long as another holder has as much. Throw
    // std::bad_alloc.
    std::vector<DeviceAccess> set(emm_context *memory, int32_t device, CUcontext by,
                                  uint32_t access);
    std::vector<DeviceAccess> end(CUcontext by); // with all access that it holds
    void forget(const emm_context *memory);

    bool holds_any(CUcontext by) const;

    // Held while a plugin is told, so that the plugin learns of changes in their order.
    std::mutex telling;

private:
    using Holders = std::map<CUcontext, uint32_t>;
    struct Key {
        emm_context *memory;
        int32_t device;
        auto operator<=>(const Key &) const = default;
    };

    mutable std::mutex mutex_;
    std::map<Key, Holders> holders_;
};

} // namespace emm::run

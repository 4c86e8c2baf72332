#pragma once

#include "common/allocations.h"

#include <atomic>
#include <map>
#include <mutex>
#include <vector>

namespace emm::common {

// Allocations that other processes have open. A free waits here until the allocation's last export
// ends, because importers must close before the exporter frees.
class Exports {
public:
    using Entry = LiveAllocations::Entry;

    void note(emm_deviceptr base, const emm_ipc_handle &handle);
    // Ends one export. After the last one, returns the allocation if it was freed meanwhile.
    Entry end(const emm_ipc_handle &handle);
    // If the allocation is exported, keeps `entry` until the last export ends, and returns true.
    bool hold_back(Entry &entry);
    // For a reset: takes one held-back entry after another. The last call ends all exports.
    Entry take_held_back() noexcept;

private:
    struct Shared {
        std::vector<emm_ipc_handle> exports;
        Entry freed; // while there are exports
    };

    std::mutex mutex_;
    std::map<emm_deviceptr, Shared> shared_; // by the allocation's address
    std::atomic<bool> any_{false};
};

} // namespace emm::common

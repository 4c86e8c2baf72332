#pragma once

#include "common/allocations.h"

#include <atomic>
#include <map>
#include <mutex>
#include <vector>

namespace emm::common {

// Allocations that other processes have open. A free waits here until the
// allocation's last export ends: an importer has to let go before the exporter does.
class Exports {
public:
    using Entry = LiveAllocations::Entry;

    void note(emm_deviceptr base, const emm_ipc_handle &handle);
    // What had been freed meanwhile, if that was its last export.
    Entry end(const emm_ipc_handle &handle);
    // True if the allocation is exported; `entry` is then kept until it is not.
    bool hold_back(Entry &entry);
    // Of a reset: one after another, and with the last the exports are over.
    Entry take_held_back() noexcept;

private:
    struct Shared {
        std::vector<emm_ipc_handle> exports;
        Entry freed; // while there are exports
    };

    std::mutex mutex_;
    std::map<emm_deviceptr, Shared> shared_; // by where the allocation begins
    std::atomic<bool> any_{false};
};

} // namespace emm::common

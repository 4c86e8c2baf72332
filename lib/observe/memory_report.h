#pragma once

#include <algorithm>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

// Who holds a device's memory: figures, and their texts and JSON. All functions are pure;
// core/reports/holders.h collects the figures.
namespace emm::observe {

// A library or a call, and the memory it holds.
struct MemoryHolder {
    std::string name;
    uint64_t bytes = 0, count = 0;
};

struct DeviceProcess {
    uint32_t id = 0;
    std::string name; // "" if unknown
    uint64_t bytes = 0;
};

// The report of one device. Unknown figures are absent: nothing is guessed.
struct MemoryReport {
    // The allocation that failed, if that is why there is a report.
    struct Request {
        uint64_t bytes = 0;
        bool of_host = false; // pinned or registered memory
        std::string caller;   // "": not known
    };
    std::optional<Request> request;

    int32_t device = 0;
    std::string plugin;
    std::string spec; // as chosen, with its options

    // The plugin's figures, of all contexts of this process on the device.
    struct Plugin {
        uint64_t live_bytes = 0, live_count = 0, cached_bytes = 0, pending_bytes = 0,
                 reserved_bytes = 0, host_live_bytes = 0,
                 largest_free_block = 0; // of all contexts; 0: none, or unknown
        uint64_t spilled_bytes = 0;      // host memory within reserved_bytes

        uint64_t of_device() const {
            const uint64_t held = std::max(reserved_bytes, live_bytes);
            return held - std::min(held, spilled_bytes);
        }
    };
    std::optional<Plugin> of_plugin;

    struct Driver {
        uint64_t free = 0, total = 0;
    };
    std::optional<Driver> of_driver; // cuMemGetInfo, within the bound if the device has one
    // The pool that served the request: its name ("": the default pool), cuMemGetInfo as the plugin
    // reports it for this pool (less, if the pool has a limit), and the device memory that it
    // holds.
    struct Pool {
        std::string name;
        uint64_t free = 0, total = 0, held = 0;
    };
    std::optional<Pool> of_pool;
    // Only for a device with a bound (EMM_LIMIT): its use by holder and kind; the memory left of
    // it; the driver's figures without it.
    std::string bound;
    std::optional<Driver> of_bound, of_device;

    std::optional<std::vector<DeviceProcess>> processes; // including this one
    std::string no_processes;                            // why they are unknown
    uint32_t own_process = 0;

    // Live allocations, the largest holder first. `sample` is N of EMM_TRACK.
    struct Tracked {
        uint32_t sample = 1;
        uint64_t lost = 0; // records that there was no memory for
        std::vector<MemoryHolder> libraries, callers;
        // Libraries, with the memory that they took from the driver itself.
        std::vector<MemoryHolder> of_driver;
        bool of_pool = false; // libraries and callers of that pool alone; false: of the device
    };
    std::optional<Tracked> tracked;
};

// This process's device memory that no plugin holds and no account has: contexts, modules, local
// memory. Empty if it cannot be told.
struct Remainder {
    uint64_t bytes = 0;
    bool includes_others = false; // other processes' memory cannot be told apart
};
std::optional<Remainder> remainder_of(const MemoryReport &report);

// Whether the pool has a limit below the device's memory.
bool is_limited(const MemoryReport &report);

// If a plugin caches nothing, its largest free block is 0, even if it does not say so.
bool is_largest_told(const MemoryReport::Plugin &plugin);

// Whether the request failed because the pool is at its limit.
bool is_pool_full(const MemoryReport &report);

// If the device has a bound: which of both has too little for the request, "bound" or "device"; "":
// neither.
std::string_view full_of(const MemoryReport &report);

// Advice as sentences, the most promising first.
std::vector<std::string> hints_for(const MemoryReport &report);

// The largest first, at most `most`; the last one sums up the others. Holders with the same name
// are merged.
std::vector<MemoryHolder> largest_holders(std::vector<MemoryHolder> all, size_t most);

// Lines without control characters, even if names have them; and one JSON object, on one line.
std::vector<std::string> report_lines(const MemoryReport &report);
std::string report_json(const MemoryReport &report);

// Memory that was still live at a moment ("at the end", "when device 0, context 1 ended"), by
// caller. Empty if none was.
std::vector<std::string> leak_lines(const MemoryReport::Tracked &tracked, std::string_view moment);

// The same for memory that the program took from the driver itself. `kinds`: "arrays 1.00 GiB"; "":
// nothing is left. For some kinds the libraries are known.
std::vector<std::string> driver_leak_lines(int32_t device, const std::string &kinds,
                                           const std::vector<MemoryHolder> &libraries);

} // namespace emm::observe

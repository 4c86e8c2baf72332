#pragma once

#include <algorithm>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

// Who holds a device's memory: figures, and what they come to as text and as JSON. All of it is
// pure; core/reports/holders.h finds the figures out.
namespace emm::observe {

// A library or a call, and what it holds.
struct MemoryHolder {
    std::string name;
    uint64_t bytes = 0, count = 0;
};

struct DeviceProcess {
    uint32_t id = 0;
    std::string name; // "" if it is not told
    uint64_t bytes = 0;
};

// Of one device. What is not known is not there: nothing is guessed.
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
    std::string spec; // as it was chosen, with its options

    // What the plugin says, of all contexts of this process on the device.
    struct Plugin {
        uint64_t live_bytes = 0, live_count = 0, cached_bytes = 0, pending_bytes = 0,
                 reserved_bytes = 0, host_live_bytes = 0,
                 largest_free_block = 0; // of all contexts; 0: none, or not told
        uint64_t spilled_bytes = 0;      // of what is reserved, host memory

        uint64_t of_device() const {
            const uint64_t held = std::max(reserved_bytes, live_bytes);
            return held - std::min(held, spilled_bytes);
        }
    };
    std::optional<Plugin> of_plugin;

    struct Driver {
        uint64_t free = 0, total = 0;
    };
    std::optional<Driver> of_driver;  // cuMemGetInfo, within the bound if the device has one
    std::optional<Driver> of_manager; // the same as the plugin tells it: less, if it has a limit
    // Of a device with a bound (EMM_LIMIT) alone: what is used of that, by holder and kind; what is
    // left of it; the driver's figures without it.
    std::string bound;
    std::optional<Driver> of_bound, of_device;

    std::optional<std::vector<DeviceProcess>> processes; // this one too
    std::string no_processes;                            // why not
    uint32_t own_process = 0;

    // Live allocations, the largest holder first. `sample` is N of EMM_TRACK.
    struct Tracked {
        uint32_t sample = 1;
        uint64_t lost = 0; // records that there was no memory for
        std::vector<MemoryHolder> libraries, callers;
        std::vector<MemoryHolder> of_driver; // libraries, what they took from the driver itself
    };
    std::optional<Tracked> tracked;
};

// What this process has of the device that is in no plugin's hands and that nothing has told of:
// contexts, modules, local memory. None if it cannot be told.
struct Remainder {
    uint64_t bytes = 0;
    bool includes_others = false; // other processes' memory is not told apart
};
std::optional<Remainder> remainder_of(const MemoryReport &report);

// Of what there is too little for the request, where the device has a bound: "bound", "device"; "":
// neither.
std::string_view full_of(const MemoryReport &report);

// What could be done, the most promising first; sentences.
std::vector<std::string> hints_for(const MemoryReport &report);

// The largest first, no more than `most`; what is left out is summed up in a last one. Those with
// the same name are one.
std::vector<MemoryHolder> largest_holders(std::vector<MemoryHolder> all, size_t most);

// Lines without control characters, whatever names are like; and one JSON object, on one line.
std::vector<std::string> report_lines(const MemoryReport &report);
std::string report_json(const MemoryReport &report);

// What was still live at a moment ("at the end", "when device 0, context 1 ended"), by caller; none
// if nothing was.
std::vector<std::string> leak_lines(const MemoryReport::Tracked &tracked, std::string_view moment);

// The same of what the program took from the driver itself. `kinds`: "arrays 1.00 GiB"; "": nothing
// is left. Of some kinds the library is known.
std::vector<std::string> driver_leak_lines(int32_t device, const std::string &kinds,
                                           const std::vector<MemoryHolder> &libraries);

} // namespace emm::observe

// The pool's options: listed by `emm info pool`, and given in a spec after the colon.
#pragma once

#include <emm/plugin.hpp>

#include <optional>
#include <string>
#include <vector>

namespace emm::pool {

extern const emm_option option_list[];

enum class Growth : uint8_t {
    automatic, // pages if the device serves them
    pages,     // growth=vmm
    segments
};

struct Options {
    uint64_t max = UINT64_MAX;      // bytes taken from the driver, never exceeded
    uint64_t host_max = UINT64_MAX; // bytes of pinned host memory, never exceeded
    bool nearest_host_node = false; // host_node=nearest
    uint64_t initial = 0;           // bytes to take at once
    // Bytes of host memory to use once the device has no more.
    uint64_t spill = 0;
    uint64_t release_threshold = UINT64_MAX; // idle bytes to keep
    Growth growth = Growth::automatic;
    double slack = 0.125;                 // fraction of the peak that may lie idle
    uint64_t places = 8;                  // most addresses that a piece may be mapped at
    bool rdma = true;                     // pages within reach of network cards
    bool waits_when_paused = false;       // when_paused=wait
    uint64_t segment = 0;                 // least growth; 0: chosen by the pool
    bool dedicated = false;               // ipc=dedicated
    uint64_t dedicated_from = UINT64_MAX; // the smallest size that gets a segment of its own

    // Throws PluginError.
    explicit Options(const char *const *texts);
    Options() = default;

    // These options, with `text` for `key`. Throws PluginError.
    Options with(const char *key, const char *text) const;
    // Takes the options that may change (EMM_OPTION_CHANGES) from `changed`. The pool's lock is
    // held.
    void change_to(Options &changed);

private:
    std::vector<std::optional<std::string>> texts_;

    void read_growth(const char *const *texts);
    void read_ipc(const char *const *texts);
};

} // namespace emm::pool

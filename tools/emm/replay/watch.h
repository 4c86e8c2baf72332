#pragma once

#include "json.h"
#include "replay/session.h"
#include "trace/trace.h"

#include <nlohmann/json.hpp>
#include <string>
#include <vector>

namespace emm::tool {

// Looks at a replay in strict order from event to event, for `emm report`: the memory that the
// driver has handed out, the addresses of blocks, and now and then the plugin's statistics and
// calls.
class Watch {
public:
    // The job's "watch": {"file": PATH, "samples": N}. Throws Failure if the file cannot be opened.
    Watch(const Json &job, const Trace &trace, Session &session);
    ~Watch();
    Watch(const Watch &) = delete;
    Watch &operator=(const Watch &) = delete;

    // After each event, in the trace's order.
    void ended();

    // Writes to the file, as numbers of 64 bits: the reserved bytes after each allocation and each
    // free, then the address of each block, ~0 if its allocation failed. {"step", "live", "cached",
    // "pending", "reserved": [N...], "calls": {NAME: [N...]}}: at some steps, the figures of
    // get_stats, and the driver calls so far.
    Json finish();

private:
    void sample();

    const Trace &trace_;
    Session &session_;
    int descriptor_ = -1;
    uint64_t every_ = 1;
    size_t event_ = 0;
    uint64_t highest_ = 0, sampled_at_ = ~uint64_t(0);
    size_t peaks_ = 0;
    std::vector<uint64_t> reserved_, addresses_;
    Json samples_;
};

} // namespace emm::tool

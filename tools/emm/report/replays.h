#pragma once

#include "commands.h"
#include "problem.h"
#include "report/history.h"
#include "trace/file.h"

#include <functional>
#include <nlohmann/json.hpp>
#include <optional>

namespace emm::tool {

// The result of replaying a history's events through a plugin.
struct Replayed {
    std::string plugin;
    bool is_recorded = false;        // no replay: the recording's own allocator
    std::optional<Problem> problem;  // the reason why all else is missing
    std::vector<uint64_t> reserved;  // after each step
    std::vector<uint64_t> addresses; // of each block
    Json driver, result, samples, notes;
};

// The memory that PyTorch had from the driver, as a snapshot of PyTorch tells it.
Replayed recorded_reserve(const History &history, const Recorded::Reserve &reserve);

// Replays the device memory of `history` through each plugin. `history` was read from `input`. Each
// plugin runs in a process of its own, on the simulated driver unless EMM_DRIVER names another
// driver. Throws Failure if no replay succeeds.
std::vector<Replayed> replay_all(const ReportOptions &options, const Input &input,
                                 const History &history,
                                 const std::function<void(const std::string &, double)> &report);

} // namespace emm::tool

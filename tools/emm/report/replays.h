#pragma once

#include "commands.h"
#include "problem.h"
#include "report/history.h"
#include "trace/file.h"

#include <functional>
#include <nlohmann/json.hpp>
#include <optional>

namespace emm::tool {

// What a replay of a history's events through a plugin has shown.
struct Replayed {
    std::string plugin;
    bool is_recorded = false;        // no replay: what the recording tells of its own allocator
    std::optional<Problem> problem;  // why there is nothing else
    std::vector<uint64_t> reserved;  // after each step
    std::vector<uint64_t> addresses; // of each block
    Json driver, result, samples, notes;
};

// What a snapshot of PyTorch tells of the memory that PyTorch had from the driver.
Replayed recorded_reserve(const History &history, const Recorded::Reserve &reserve);

// Replays the device memory of `history`, which was read from `input`, through each plugin, in a
// process of its own, on the simulated driver unless EMM_DRIVER says otherwise. Throws Failure if
// none could.
std::vector<Replayed> replay_all(const ReportOptions &options, const Input &input,
                                 const History &history,
                                 const std::function<void(const std::string &, double)> &report);

} // namespace emm::tool

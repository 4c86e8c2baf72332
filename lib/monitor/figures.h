#pragma once

#include "core/record/context.h"

#include <emm/emm.h>

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

namespace emm::monitor {

// A large allocation that has been live for long.
struct OldAllocation {
    uint64_t size = 0;
    int64_t age = 0;    // nanoseconds
    std::string module; // the file that asked for it
    std::string caller; // the line of Python, "" if none is known
};

// What one context holds. Until `stats` are there, `problem` says why they are not.
struct ContextFigures {
    int32_t device = 0;
    uint64_t id = 0;
    uint8_t uuid[16] = {};
    uint32_t pci[3] = {};     // domain, bus, device
    uint64_t total_bytes = 0; // of the device
    uint64_t pending_frees = 0, pending_free_bytes = 0;
    std::optional<emm_stats> stats;
    int64_t at = 0; // when they were told: CLOCK_MONOTONIC, nanoseconds
    std::string problem;
    std::vector<OldAllocation> oldest; // the oldest first
};

// What is known without asking the plugin. The problem is that it has not answered yet.
ContextFigures identify(const emm_context &context);

// Asks the plugin, which may take a lock of its own, or hang. The context's manager is neither made
// nor given up meanwhile; a context for which that happens just now is not waited for.
void ask(emm_context &context, ContextFigures &ret_figures);

// Of the large ones those that have been live for longest, where the process tracks its
// allocations.
inline constexpr size_t most_oldest = 5;
std::vector<OldAllocation> oldest_allocations(const emm_context &context);

} // namespace emm::monitor

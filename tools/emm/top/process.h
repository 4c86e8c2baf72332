#pragma once

#include <emm/emm.h>

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

// `emm top`: what the processes of this user that use emm hold.
namespace emm::tool::top {

// A large allocation that has been live for long, of a process that tracks them.
struct OldAllocation {
    uint64_t size = 0;
    int64_t age = 0;    // nanoseconds
    std::string module; // that asked for it
    std::string caller; // the line of Python; empty: not known
};

struct Context {
    int64_t device = 0; // ordinal, as the process counts
    uint64_t id = 0;
    std::string uuid, pci;    // of the device
    uint64_t total_bytes = 0; // of the device
    uint64_t pending_frees = 0, pending_free_bytes = 0;
    std::optional<emm_stats> stats;
    int64_t at = 0;                         // when they were told, by the process's clock; ns
    std::string problem;                    // why there are no stats
    std::optional<double> allocations_rate; // a second; known from the second answer on
    std::vector<OldAllocation> oldest;
};

struct Process {
    std::string name; // of its socket: no other process has it
    int64_t pid = 0;
    std::string program, command;
    std::string emm, plugin, plugin_version; // empty: it did not say
    std::string problem;                     // empty: it has answered
    int64_t stuck = 0;                       // for how long its plugin has not answered; ns
    std::vector<Context> contexts;
    uint64_t contexts_left_out = 0;
    std::string report; // if it was asked for
};

} // namespace emm::tool::top

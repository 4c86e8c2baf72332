#pragma once

#include "bench/candidate.h"
#include "commands.h"

#include <cstdint>
#include <string>
#include <vector>

namespace emm::tool {

struct PlannedCandidate {
    std::string kind;
    std::string plugin; // a spec; "" if the environment names it, or for other kinds

    std::string label() const { return kind == plugin_kind ? plugin : kind; }
};

struct PlannedMeasurement {
    size_t candidate = 0; // an index into Plan::candidates
    Measurement measurement;
};

// A parsed command line: the candidates, and the measurements that take turns.
struct Plan {
    std::vector<PlannedCandidate> candidates;
    std::vector<std::vector<PlannedMeasurement>> groups;
};

Plan make_plan(const BenchOptions &options);

// One measurement. `size` is its block size unless --size gives another; 0: the case draws sizes of
// its own.
struct BenchCase {
    const char *name;
    uint64_t size;
    const char *help; // one line
};

const std::vector<BenchCase> &bench_cases();

// Throws Failure, which lists the names, if no case has the name.
const BenchCase &find_case(const std::string &name);

// Whether a case takes no turns with others: several processes' live sets would not fit on a device
// together. Cases that are compared directly take turns, round by round.
bool is_measured_alone(const std::string &name);

// Whether the pairs of a case may call the driver. Their driver calls are counted too, in a process
// of its own, because counting would add to the measured time.
bool counts_driver_calls(const std::string &name);

} // namespace emm::tool

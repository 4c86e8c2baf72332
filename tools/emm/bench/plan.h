#pragma once

#include "bench/candidate.h"
#include "bench/options.h"

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

// What a command line asks for: who takes part, and which measurements take turns.
struct Plan {
    std::vector<PlannedCandidate> candidates;
    std::vector<std::vector<PlannedMeasurement>> groups;
};

Plan make_plan(const BenchOptions &options);

} // namespace emm::tool

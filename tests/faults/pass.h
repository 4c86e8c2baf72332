// One pass of a workload with a failing call, and the checks afterwards.
#pragma once

#include "workloads.h"

namespace faults {

struct Verdict {
    Outcome outcome;
    bool refused = false; // the plugin does not do this
    std::vector<std::string> complaints;
};

Verdict pass(const Workload &workload, const Plan &plan, const Offer *offer);

// Runs without failures: a complaint is then not the faults' work.
Verdict pass_in_peace(const Workload &workload, const Offer *offer);

} // namespace faults

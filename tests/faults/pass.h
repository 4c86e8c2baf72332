// One pass of a workload with something failing, and what must hold afterwards.
#pragma once

#include "workloads.h"

namespace faults {

struct Verdict {
    Outcome outcome;
    bool refused = false; // the plugin does not do this
    std::vector<std::string> complaints;
};

Verdict pass(const Workload &workload, const Plan &plan, const Offer *offer);

// Nothing fails; what is wrong then is no fault of the faults.
Verdict pass_in_peace(const Workload &workload, const Offer *offer);

} // namespace faults

#pragma once

#include "check/case.h"
#include "check/options.h"

#include <string>
#include <vector>

namespace emm::tool::check {

// One run of a case.
struct Planned {
    const Case *entry;
    std::string mode; // "": the case does not depend on it
    std::string name() const;
};

// The cases that the filters select, for a simulated driver or a real one.
std::vector<Planned> plan(const CheckOptions &options, bool simulated);

// EMM_SIM for it: what the case asks for, then what the environment says, then the suite's own.
std::string simulator_settings(const Planned &planned, uint64_t seed);

} // namespace emm::tool::check

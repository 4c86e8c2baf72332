#pragma once

#include "check/case.h"
#include "commands.h"

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

// EMM_SIM for the case: the case's own settings first, then the environment's, then the suite's.
std::string simulator_settings(const Planned &planned, uint64_t seed);

// One function for each file of cases.
std::vector<Case> library_cases();
std::vector<Case> table_cases();
std::vector<Case> memory_cases();
std::vector<Case> account_cases();
std::vector<Case> statistics_cases();
std::vector<Case> lifetime_cases();
std::vector<Case> version_cases(); // in table.cpp
std::vector<Case> thread_cases();
std::vector<Case> fault_cases();
std::vector<Case> wait_cases();
std::vector<Case> stream_cases();
std::vector<Case> capture_cases();
std::vector<Case> cleanup_cases();
std::vector<Case> trim_cases();
std::vector<Case> pause_cases();
std::vector<Case> host_memory_cases();
std::vector<Case> process_cases();
std::vector<Case> host_side_cases();
std::vector<Case> layer_cases();

// The other side of sharing: opens the memory that the job describes and tells its content.
Json open_shared(const Json &job);

} // namespace emm::tool::check

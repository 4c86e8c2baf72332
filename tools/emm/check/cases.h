#pragma once

#include "check/case.h"

namespace emm::tool::check {

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
std::vector<Case> order_fault_cases();
std::vector<Case> wait_cases();
std::vector<Case> stream_cases();
std::vector<Case> capture_cases();
std::vector<Case> cleanup_cases();
std::vector<Case> trim_cases();
std::vector<Case> return_cases();
std::vector<Case> host_memory_cases();
std::vector<Case> process_cases();
std::vector<Case> host_side_cases();

} // namespace emm::tool::check

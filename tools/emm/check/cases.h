#pragma once

#include "check/case.h"

namespace emm::tool::check {

// One function for each file of cases.
std::vector<Case> library_cases();
std::vector<Case> table_cases();
std::vector<Case> memory_cases();

} // namespace emm::tool::check

#pragma once

#include "top/process.h"

namespace emm::tool::top {

// Sets the rates of `ret_now` from what the same contexts said before. A context that is new, or
// whose count has gone back because it was reset, has none.
void find_rates(const std::vector<Process> &before, std::vector<Process> &ret_now);

} // namespace emm::tool::top

#pragma once

#include <cstdint>
#include <map>
#include <string>

namespace emm::tool {

// Driver functions that emm and its plugin have called, and how often.
using CallCounts = std::map<std::string, uint64_t>;
CallCounts count_driver_calls();
uint64_t total(const CallCounts &counts);

} // namespace emm::tool

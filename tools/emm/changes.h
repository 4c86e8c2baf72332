#pragma once

#include <optional>
#include <string>
#include <utility>
#include <vector>

namespace emm::tool {

// Changes to the environment: a name and its value, or none to remove it.
using Changes = std::vector<std::pair<std::string, std::optional<std::string>>>;

} // namespace emm::tool

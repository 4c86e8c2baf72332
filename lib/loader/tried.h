#pragma once

#include <string>
#include <vector>

namespace emm::loader {

// How a sentence ends that tells where a plugin was looked for: " (tried A, B, C and 2 more)".
// "" if that was nowhere.
std::string tried_places(const std::vector<std::string> &tried);

} // namespace emm::loader

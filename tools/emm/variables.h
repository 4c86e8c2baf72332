#pragma once

#include <string>
#include <vector>

namespace emm::tool {

// Every variable of the environment that changes emm, the most used first.
const std::vector<const char *> &variables();

// "Environment: ", and all of them, in lines that fit a terminal.
std::string variables_help();

} // namespace emm::tool

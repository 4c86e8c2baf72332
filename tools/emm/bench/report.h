#pragma once

#include "json.h"

#include <string>

namespace emm::tool {

// The table of `emm bench` for people, from the object that --json prints.
std::string bench_text(const Json &report);

// Nothing failed.
bool bench_is_good(const Json &report);

} // namespace emm::tool

#pragma once

#include "json.h"

#include <string>

namespace emm::tool {

// The table of `emm replay` for people, from the object that --json prints.
std::string replay_text(const Json &report);

// Nothing failed, leaked or was handed over too early, and every plugin ran.
bool replay_is_good(const Json &report);

} // namespace emm::tool

#pragma once

#include "json.h"

#include <string>

namespace emm::tool {

// The most important figures of a page as a few lines, from the object that --json prints.
std::string summary_text(const Json &figures);

} // namespace emm::tool

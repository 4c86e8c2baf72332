#pragma once

#include "json.h"
#include "top/view.h"

namespace emm::tool::top {

// What --json prints, in the order of the column.
Json to_json(const std::vector<Process> &processes, Column by);

} // namespace emm::tool::top

#pragma once

#include "json.h"
#include "report/callers.h"
#include "report/history.h"

#include <string>

namespace emm::tool {

// Compares two recordings of a program in the kind of memory that has the largest peak: by caller
// where both tell callers, else by size. Each figure is a pair, before and now. Rows are sorted by
// the change of the peak, the largest first, and then by the change of the live bytes at the end.
Json changes_json(const std::string &name_before, const Recorded &before, const Recorded &now);

} // namespace emm::tool

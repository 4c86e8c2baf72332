#pragma once

#include "json.h"
#include "report/callers.h"
#include "report/history.h"

#include <string>

namespace emm::tool {

// What changed between two recordings of a program, in the kind of memory that has the largest
// peak: by caller where both tell callers, else by size. Each figure is a pair, before and now.
// Rows come with the largest change of the peak first, and behind those of equal changes the
// largest change of what is live at the end.
Json changes_json(const std::string &name_before, const Recorded &before, const Recorded &now);

} // namespace emm::tool

#pragma once

#include "json.h"
#include "report/groups.h"
#include "report/replays.h"

namespace emm::tool {

// The figures that the page and --json show. Times are nanoseconds since the recording began.

// Of one kind of memory on one device; who or what had it at the peak, by each of `groups`.
Json figures_of(const History &history, const Peak &peak, const std::vector<GroupSet> &groups);

// Of a replay: the most that was reserved, and what it was made of then.
Json figures_of(const Replayed &replayed, const History &history, const Peak &peak);

// "device memory"
std::string name_of(Memory memory);

} // namespace emm::tool

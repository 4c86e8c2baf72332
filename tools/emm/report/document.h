#pragma once

#include "json.h"
#include "report/groups.h"
#include "report/replays.h"

#include <string>

namespace emm::tool {

// All that the page draws: `figures` for people and --json, and beside these series, trees,
// histograms and maps, for each kind of memory. `replays` are replays of the first history.
// Calls `report` with the share that is done.
Json document_of(const std::string &name, const Recorded &recorded,
                 const std::vector<Replayed> &replays, const std::function<void(double)> &report);

// The figures that the page and --json show. Times are nanoseconds since the recording began.

// The figures of one kind of memory on one device, with its owners at the peak, by each of
// `groups`.
Json figures_of(const History &history, const Peak &peak, const std::vector<GroupSet> &groups);

// The figures of a replay: the most reserved memory, and its parts at that time.
Json figures_of(const Replayed &replayed, const History &history, const Peak &peak);

// "device memory"
std::string name_of(Memory memory);

// The most important figures of a page as a few lines, from the object that --json prints.
std::string summary_text(const Json &figures);

} // namespace emm::tool

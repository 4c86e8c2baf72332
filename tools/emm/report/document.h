#pragma once

#include "json.h"
#include "report/replays.h"

namespace emm::tool {

// All that the page draws: `figures` for people and --json, and beside them series, trees,
// histograms and maps, for each kind of memory. `replays` are of the first history. `report` is
// called with the share that is done.
Json document_of(const std::string &name, const Recorded &recorded,
                 const std::vector<Replayed> &replays, const std::function<void(double)> &report);

} // namespace emm::tool

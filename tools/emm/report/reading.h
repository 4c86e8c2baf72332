#pragma once

#include "report/history.h"
#include "trace/input.h"

#include <functional>

namespace emm::tool {

// Reads an event log or a trace; a log is completed first if its program was killed. `report` is
// called with the share that was read. Throws Failure.
Recorded read_recorded(const Input &input, const std::function<void(double)> &report);

} // namespace emm::tool

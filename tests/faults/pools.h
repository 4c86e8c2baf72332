// Workloads about pools: one with a name, one with memory at several addresses, and one that is
// paused and resumed.
#pragma once

#include "run.h"

namespace faults {

void pools(Run &run);
void spread_places(Run &run);
void places(Run &run);
void pause(Run &run);

} // namespace faults

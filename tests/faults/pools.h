// Workloads about pools: with a name, with memory at several addresses, and paused and resumed.
#pragma once

#include "run.h"

namespace faults {

void pools(Run &run);
void spread_places(Run &run);
void places(Run &run);
void pause(Run &run);

} // namespace faults

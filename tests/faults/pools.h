// Workloads about pools: one with a name, and one that is paused and resumed.
#pragma once

#include "run.h"

namespace faults {

void pools(Run &run);
void pause(Run &run);

} // namespace faults

#pragma once

#include "run/options.h"

namespace emm::tool {

// `emm run`: becomes the program, or returns the exit status. Throws Failure if the plugin does not
// load.
int run_program(const RunOptions &options);

} // namespace emm::tool

#pragma once

#include "run/options.h"
#include "write_signals.h"

namespace emm::tool {

// `emm run`: becomes the program, or returns the exit status. Throws Failure if the plugin does not
// load. The program gets the signals as they were.
int run_program(const RunOptions &options, WriteSignalsIgnored &signals);

} // namespace emm::tool

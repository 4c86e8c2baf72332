// Workloads of processes whose environment asks for more: a log, a limit, a report.
#pragma once

#include "workloads.h"

namespace faults {

// The folder that "%d" in a workload's environment stands for. The first call makes it.
const std::string &own_folder();
void remove_own_folder();

void load(Run &run);
void logged(Run &run);
void limited(Run &run);
void reported(Run &run);
void plugins(Run &run);
void start_importer();
void serve(Run &run);

} // namespace faults

#pragma once

#include "json.h"
#include "replay/options.h"

namespace emm::tool {

class Parent;

// `emm replay`: returns the exit status.
int run_replay(const ReplayOptions &options);

// Its part in each plugin's own process: one trace through the plugin that the environment names.
void run_replay_job(const Json &job, Parent &parent);

} // namespace emm::tool

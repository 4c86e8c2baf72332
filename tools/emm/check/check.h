#pragma once

#include "check/options.h"
#include "json.h"

namespace emm::tool {

class Parent;

// `emm check`: returns the exit status. Throws Failure if the plugin does not load.
int run_check(const CheckOptions &options);

// Its part in a process of its own: what the plugin is, one case, or the other side of sharing.
void run_check_job(const Json &job, Parent &parent);

} // namespace emm::tool

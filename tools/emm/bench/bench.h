#pragma once

#include "bench/options.h"
#include "json.h"

namespace emm::tool {

class Parent;

// `emm bench`: returns the exit status.
int run_bench(const BenchOptions &options);

// Its part in a process of its own: the measurements of one candidate.
void run_bench_job(const Json &job, Parent &parent);

} // namespace emm::tool

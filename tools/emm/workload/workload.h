#pragma once

#include "trace/trace.h"

#include <cstdint>
#include <string>
#include <vector>

namespace emm::tool {

// Programs in miniature, for a replay without a recording. The same seed gives the same trace.
struct Workload {
    const char *name;
    const char *help; // one line
    Trace (*generate)(uint64_t seed);
};

const std::vector<Workload> &workloads();

// Throws Failure, which lists the names, if no workload has the name.
Trace generate(const std::string &name, uint64_t seed);

Trace generate_train(uint64_t seed);
Trace generate_dataframe(uint64_t seed);
Trace generate_arrays(uint64_t seed);
Trace generate_serve(uint64_t seed);
Trace generate_overlap(uint64_t seed);

} // namespace emm::tool

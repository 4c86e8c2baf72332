#include "workload/workload.h"

#include "problem.h"

namespace emm::tool {

const std::vector<Workload> &workloads() {
    static const std::vector<Workload> all = {
        {"train", "mixed-precision training of a small GPT on batches of varying length",
         generate_train},
        {"dataframe", "table queries by 8 threads, each on its own stream; results handed over",
         generate_dataframe},
        {"arrays", "small arrays as in Numba programs, with sections of deferred clean-up",
         generate_arrays},
        {"serve", "a language model serving requests in batches, with a paged cache",
         generate_serve},
        {"overlap", "the training, with gradients summed up on a second stream meanwhile",
         generate_overlap}};
    return all;
}

Trace generate(const std::string &name, uint64_t seed) {
    std::string names;
    for (const Workload &workload : workloads()) {
        if (name == workload.name) {
            Trace trace = workload.generate(seed);
            trace.name = name + ":seed=" + std::to_string(seed);
            return trace;
        }
        names += (names.empty() ? "" : ", ") + std::string(workload.name);
    }
    throw Failure({.stage = "usage",
                   .message = "--generate: expected one of " + names + ", found '" + name + "'",
                   .expected = names,
                   .got = name});
}

} // namespace emm::tool

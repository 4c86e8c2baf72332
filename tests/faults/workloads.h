// What emm is used for, one thing at a time.
#pragma once

#include "run.h"

namespace faults {

enum class Leaves { context, no_context, no_process }; // that can be used afterwards

struct Workload {
    const char *name;
    void (*run)(Run &);
    Leaves leaves = Leaves::context;
    void (*again)(Run &) = nullptr; // what is repeated, if not the whole
    bool from_nothing = false;      // the process has neither plugin nor context yet
    bool needs_offer = false;
    bool optional = false; // a plugin may answer that it does not support this
    int device = 0;        // that it runs on
    const char *variable = nullptr, *value = nullptr; // of the environment
    bool starts_threads = false;
    bool counts_all = false; // after one refusal or two a context counts all that it holds
};

const std::vector<Workload> &workloads();

} // namespace faults

// The uses of emm, one at a time.
#pragma once

#include "run.h"

namespace faults {

enum class Leaves { context, no_context, no_process }; // the thing that can be used afterwards

struct Workload {
    const char *name;
    void (*run)(Run &);
    Leaves leaves = Leaves::context;
    void (*prepare)() = nullptr;    // before the process has a driver
    void (*again)(Run &) = nullptr; // the part to repeat, if not the whole
    bool from_nothing = false;      // the process has neither plugin nor context yet
    bool needs_offer = false;
    bool optional = false; // a plugin may lack support
    int device = 0;        // the device of the run
    // Variables of the process. "%d" stands for own_folder().
    std::vector<std::pair<const char *, const char *>> environment = {};
    bool only_host = false; // a start; its driver calls fail in other workloads
    bool starts_threads = false;
    bool counts_all = false; // after one or two refusals a context counts all its memory
};

const std::vector<Workload> &workloads();

} // namespace faults

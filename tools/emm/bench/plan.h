#pragma once

#include "bench/options.h"
#include "bench/subject.h"

#include <string>
#include <vector>

namespace emm::tool {

struct PlannedSubject {
    std::string kind;
    std::string plugin; // a spec; "" if the environment names it, or for other kinds

    std::string label() const { return kind == plugin_kind ? plugin : kind; }
};

struct PlannedEntry {
    size_t subject = 0; // an index into Plan::subjects
    Entry entry;
};

// What a command line asks for: who takes part, and which measurements take turns.
struct Plan {
    std::vector<PlannedSubject> subjects;
    std::vector<std::vector<PlannedEntry>> groups;
};

Plan make_plan(const BenchOptions &options);

} // namespace emm::tool

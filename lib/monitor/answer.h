#pragma once

#include "monitor/collector.h"

#include <string>

namespace emm::monitor {

// The process itself, whichever context is asked about.
struct Program {
    int64_t pid = 0;
    std::string name;    // of its executable file
    std::string command; // its arguments with spaces between them, as many as are useful
};

// This process, as /proc describes it now.
Program this_program();

// The whole message that answers `kind`: header and JSON, of at most longest_answer bytes. Contexts
// that do not fit are counted.
std::string answer(RequestKind kind, const Program &program, const loader::Plugin *plugin,
                   const Collected &collected);

// The same for RequestKind::set, from the collected answer.
std::string answer_to_set(const Collected &collected);

// The same for RequestKind::profile.
std::string answer_to_profile(const Collected &collected);

// The outcome of RequestKind::pause or RequestKind::resume.
struct PausedPool {
    int32_t device = 0;
    uint64_t context = 0;
    std::string pool;
    uint64_t bytes = 0;
    std::string stays;
};
struct OutsideDone {
    std::string problem; // "": everything is done
    int64_t nanoseconds = 0;
    std::vector<PausedPool> pools;
};
std::string answer_to_outside(const OutsideDone &done);

// The same for RequestKind::limit. If more is in use than the new bound allows, `above` is a
// sentence about it; else `above` is empty.
std::string answer_to_limit(const std::string &problem, const std::string &above);

} // namespace emm::monitor

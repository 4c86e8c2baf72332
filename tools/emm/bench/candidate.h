#pragma once

#include "bench/team.h"
#include "json.h"

#include <emm/plugin.h>

#include <memory>
#include <string>
#include <vector>

namespace emm::tool {

// The subject of a measurement: a plugin, or an allocator to compare plugins with. Each has a
// process of its own.
class Candidate {
public:
    virtual ~Candidate() = default;
    virtual Team::Maker maker(const Measurement &measurement) = 0;
    // After a measurement: cached memory must not disturb the next one.
    virtual void return_cached() {}
    // As `emm info` tells it; null if it needs no driver.
    virtual Json driver() const;
    // The candidate as the environment named it; "" if that does not matter.
    virtual std::string spec() const { return ""; }
};

// Why a candidate is missing. This is no failure.
struct Absent {
    std::string reason;
};

// A kind of candidate: the name for its process, and the cases that it can run.
struct CandidateKind {
    const char *name;
    std::vector<const char *> cases;
    std::unique_ptr<Candidate> (*make)(); // throws Absent or Failure
};

constexpr const char *plugin_kind = "plugin", *logged_kind = "empty, logged",
                     *tracked_kind = "empty, tracked", *stacks_kind = "empty, with stacks";
const std::vector<CandidateKind> &candidate_kinds();

// Throws Absent or Failure.
std::unique_ptr<Candidate> make_candidate(const std::string &kind);

std::unique_ptr<Candidate> make_plugin_candidate();
std::unique_ptr<Candidate> make_empty_candidate();

// The entry of a plugin that is linked into the tool and does nothing: every block has the same
// address. The cost of a pair with it is the cost of its caller.
const emm_plugin *empty_plugin_entry(const emm_host *host);

} // namespace emm::tool

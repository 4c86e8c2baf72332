#include "bench/candidate.h"

#include <cstring>
#include <nlohmann/json.hpp>

namespace emm::tool {

const std::vector<CandidateKind> &candidate_kinds() {
    static const std::vector<CandidateKind> kinds = {
        {"empty", {"bare", "vtable", "clock"}},
        {logged_kind, {"logged"}},
        {tracked_kind, {"tracked"}},
        {stacks_kind, {"tracked_stack"}},
        {plugin_kind,
         {"pair", "pair_null", "pair_raw", "pair_unordered", "pair_busy", "pair_current", "handle",
          "mixed", "holes", "large", "host", "cross"}},
        {"malloc", {"pair", "mixed", "cross"}},
        {"mimalloc", {"pair", "mixed", "cross"}},
        {"cuMemAlloc", {"pair"}},
        {"cuMemAllocAsync", {"pair", "mixed", "holes", "large", "cross"}},
        {"cuMemHostAlloc", {"host"}},
        {"driver", {"ask_raw", "ask_current"}},
        {"counter", {"counter"}}};
    return kinds;
}

Json Candidate::driver() const {
    return nullptr;
}

std::unique_ptr<Candidate> make_candidate(const std::string &kind) {
    static constexpr struct {
        const char *kind;
        std::unique_ptr<Candidate> (*make)();
    } makers[] = {{"empty", make_empty_candidate},
                  {logged_kind, make_empty_candidate},
                  {tracked_kind, make_empty_candidate},
                  {stacks_kind, make_empty_candidate},
                  {plugin_kind, make_plugin_candidate},
                  {"malloc", make_malloc_candidate},
                  {"mimalloc", make_mimalloc_candidate},
                  {"cuMemAlloc", make_driver_candidate},
                  {"cuMemAllocAsync", make_driver_async_candidate},
                  {"cuMemHostAlloc", make_driver_host_candidate},
                  {"driver", make_driver_questions_candidate},
                  {"counter", make_counter_candidate}};
    for (const auto &maker : makers) {
        if (kind == maker.kind) {
            return maker.make();
        }
    }
    throw Absent{"there is no such thing to measure: " + kind};
}

} // namespace emm::tool

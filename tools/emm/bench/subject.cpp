#include "bench/subject.h"

#include <cstring>
#include <nlohmann/json.hpp>

namespace emm::tool {

const std::vector<SubjectKind> &subject_kinds() {
    static const std::vector<SubjectKind> kinds = {
        {"empty", {"bare", "vtable", "clock"}},
        {logged_kind, {"logged"}},
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

Json Subject::driver() const {
    return nullptr;
}

std::unique_ptr<Subject> make_subject(const std::string &kind) {
    static constexpr struct {
        const char *kind;
        std::unique_ptr<Subject> (*make)();
    } makers[] = {{"empty", make_empty_subject},
                  {logged_kind, make_empty_subject},
                  {plugin_kind, make_plugin_subject},
                  {"malloc", make_malloc_subject},
                  {"mimalloc", make_mimalloc_subject},
                  {"cuMemAlloc", make_driver_subject},
                  {"cuMemAllocAsync", make_driver_async_subject},
                  {"cuMemHostAlloc", make_driver_host_subject},
                  {"driver", make_driver_questions_subject},
                  {"counter", make_counter_subject}};
    for (const auto &maker : makers) {
        if (kind == maker.kind) {
            return maker.make();
        }
    }
    throw Absent{"there is no such thing to measure: " + kind};
}

} // namespace emm::tool

#include "check/cases.h"

namespace emm::tool::check {

// What fails a basic case fails most of the later ones: the first failure says what is wrong.
const std::vector<Case> &cases() {
    static const std::vector<Case> all = [] {
        std::vector<Case> made;
        for (const auto &part :
             {library_cases(), table_cases(), memory_cases(), account_cases(), statistics_cases(),
              lifetime_cases(), version_cases(), thread_cases(), wait_cases(), fault_cases(),
              order_fault_cases(), stream_cases(), capture_cases(), cleanup_cases(), trim_cases(),
              return_cases(), host_memory_cases(), process_cases(), host_side_cases()}) {
            made.insert(made.end(), part.begin(), part.end());
        }
        return made;
    }();
    return all;
}

} // namespace emm::tool::check

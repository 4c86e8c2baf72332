#include "replay/meter.h"

#include "problem.h"

namespace emm::tool {

CallCounts count_driver_calls() {
    CallCounts counts;
    const auto note = [](const char *name, uint64_t calls, void *user_data) {
        static_cast<CallCounts *>(user_data)->emplace(name, calls);
    };
    require(emm_foreach_driver_call(note, &counts), "run");
    return counts;
}

uint64_t total(const CallCounts &counts) {
    uint64_t sum = 0;
    for (const auto &[name, calls] : counts) {
        sum += calls;
    }
    return sum;
}

} // namespace emm::tool

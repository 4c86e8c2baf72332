#include "commands.h"

#include "json.h"
#include "observe/text.h"
#include "print.h"
#include "progress.h"
#include "table.h"
#include "trace/reader.h"

#include <algorithm>
#include <fmt/format.h>
#include <nlohmann/json.hpp>

namespace emm::tool {

int run_events(const EventsOptions &options) {
    bool was_incomplete = false;
    Progress progress;
    const Trace log = read_event_log(options.log, was_incomplete, [&](double share) {
        progress.show("reading " + options.log, share);
    });
    progress.clear();
    const auto count = [&](Op op) {
        return std::count_if(log.events.begin(), log.events.end(),
                             [op](const Event &event) { return event.op == op; });
    };
    const auto allocations = static_cast<uint64_t>(count(Op::alloc));
    const auto frees = static_cast<uint64_t>(count(Op::free)) - log.drops.all();
    if (options.json) {
        print_json(Json{{"log", options.log},
                        {"completed", was_incomplete},
                        {"allocations", allocations},
                        {"frees", frees},
                        {"dropped_by_reset", log.drops.by_reset},
                        {"dropped_with_context", log.drops.with_context},
                        {"peak_live_bytes", log.peak_live_bytes}});
    } else {
        print(fmt::format(
            "{}: {}; device memory: {}, {}{}, at most {} live\n", observe::one_line(options.log),
            was_incomplete ? "completed from what the program had recorded"
                           : "was complete, nothing to do",
            observe::counted(allocations, "allocation"), observe::counted(frees, "free"),
            drops_text(log.drops), in_bytes(log.peak_live_bytes)));
    }
    return 0;
}

} // namespace emm::tool

#include "events.h"

#include "command.h"
#include "json.h"
#include "observe/text.h"
#include "print.h"
#include "progress.h"
#include "table.h"
#include "trace/reader.h"
#include "usage.h"

#include <CLI/CLI.hpp>
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
        print(fmt::format("{}: {}; device memory: {} allocations, {} frees{}, at most {} live\n",
                          observe::one_line(options.log),
                          was_incomplete ? "completed from what the program had recorded"
                                         : "was complete, nothing to do",
                          allocations, frees, drops_text(log.drops),
                          in_bytes(log.peak_live_bytes)));
    }
    return 0;
}

Command events_command(CLI::App &app) {
    const auto options = std::make_shared<EventsOptions>();
    CLI::App *events = app.add_subcommand(
        "events", "Complete the event log of a program that was killed, and sum it up");
    events->add_option("LOG", options->log, "the file that EMM_EVENT_LOG named")
        ->option_text(" ")
        ->required();
    json_flag(events, options->json);
    events->footer("What the program had recorded and not yet written lies beside the log, in "
                   "LOG.spool;\nit becomes rows, and that file goes. `emm replay LOG` does the "
                   "same first.");
    return {events, [options] { return run_events(*options); }};
}

} // namespace emm::tool

#include "commands.h"

#include "exchange/conversion.h"
#include "exchange/exports.h"
#include "observe/text.h"
#include "print.h"
#include "progress.h"
#include "trace/event_log.h"
#include "usage.h"

#include <fmt/format.h>
#include <nlohmann/json.hpp>
#include <unistd.h>

namespace emm::tool {
namespace {

void check_usage(const ExportOptions &options) {
    const bool is_binary = options.to != "chrome-trace";
    if (options.json && options.output.empty()) {
        throw usage("export: --json needs -o FILE");
    }
    if (is_binary && options.output.empty() && isatty(STDOUT_FILENO) == 1) {
        throw usage("export: expected -o FILE, because " + options.to +
                    " is binary and standard output is a terminal");
    }
    if (options.log.empty() == (options.pid == 0)) {
        throw usage(options.pid == 0 ? "export: give LOG or --pid PID"
                                     : "export: give LOG or --pid PID, not both");
    }
    if (options.pid != 0 && options.to != "pprof") {
        throw usage("export: expected --to pprof with --pid, found " + options.to);
    }
    if (options.to == "pprof" && options.last) {
        throw usage("export: --last cannot be used with --to pprof, which sums up all events");
    }
}

void tell(const ExportOptions &options, const std::string &name, const Json &result) {
    if (options.json) {
        Json report = {{options.pid == 0 ? "log" : "process", name},
                       {"to", options.to},
                       {"file", options.output}};
        report.update(result);
        print_json(report);
        return;
    }
    std::string text;
    for (const auto &[key, value] : result.items()) {
        const bool is_drop = key.starts_with("dropped_");
        if (!is_drop) {
            text += fmt::format("{} {} {}", text.empty() ? ":" : ",", value.get<uint64_t>(),
                                key == "left_off" ? "left off" : key);
        }
    }
    text += drops_text({result.value("dropped_by_reset", uint64_t(0)),
                        result.value("dropped_with_context", uint64_t(0))});
    const std::string line =
        fmt::format("{}, as {}{}\n", observe::one_line(name), options.to, text);
    options.output.empty() ? print_error(line) : print(line);
}

int export_process(const ExportOptions &options) {
    Output output(options.output);
    const ProfileTotals totals = export_live_profile(options.pid, output);
    output.finish();
    tell(options, fmt::format("process {}", options.pid),
         {{"samples", totals.samples}, {"live", totals.live}});
    return 0;
}

class Export {
public:
    explicit Export(const ExportOptions &options)
        : options_(options), log_(options.log),
          timeline_(log_, sites_, [this](double share) { show(share); }) {}

    int run() {
        if (options_.log != "-") {
            complete_event_log(options_.log);
        }
        Output output(options_.output, {options_.log});
        const Json result = write(output);
        output.finish();
        progress_.clear();
        tell(options_, log_.name(), result);
        return 0;
    }

private:
    Json write(Output &output) {
        const uint64_t last = options_.last.value_or(~uint64_t(0));
        if (options_.to == "chrome-trace") {
            const ChromeTotals totals = export_chrome_trace(timeline_, sites_, last, output);
            return {{"allocations", totals.allocations},
                    {"frees", totals.frees},
                    {"failures", totals.failures},
                    {"left_off", totals.left_off},
                    {"dropped_by_reset", totals.drops.by_reset},
                    {"dropped_with_context", totals.drops.with_context}};
        }
        if (options_.to == "pprof") {
            const ProfileTotals totals = export_profile(timeline_, sites_, output);
            return {{"samples", totals.samples},
                    {"allocations", totals.allocations},
                    {"live", totals.live}};
        }
        const SnapshotTotals totals = export_snapshot(timeline_, sites_, last, output);
        return {{"events", totals.events},
                {"left_off", totals.left_off},
                {"live", totals.live},
                {"dropped_by_reset", totals.drops.by_reset},
                {"dropped_with_context", totals.drops.with_context}};
    }

    void show(double share) {
        if (pace_.is_due()) {
            progress_.show("reading " + log_.name(), share);
        }
    }

    const ExportOptions &options_;
    const Input log_;
    CallSites sites_;
    Progress progress_;
    Pace pace_;
    Timeline timeline_;
};

} // namespace

int run_export(const ExportOptions &options) {
    check_usage(options);
    return options.pid == 0 ? Export(options).run() : export_process(options);
}

} // namespace emm::tool

#include "commands.h"

#include "exchange/conversion.h"
#include "exchange/output.h"
#include "observe/text.h"
#include "print.h"
#include "progress.h"
#include "report/changes.h"
#include "report/document.h"
#include "report/history.h"
#include "report/page.h"
#include "report/replays.h"
#include "usage.h"

#include <algorithm>
#include <filesystem>
#include <fmt/format.h>
#include <nlohmann/json.hpp>

namespace emm::tool {
namespace {

void check_report_usage(const ReportOptions &options) {
    if (options.output && options.output->empty()) {
        throw usage("report: -o: expected a file's name, found ''");
    }
    if (options.to && options.from.value_or(0) > *options.to) {
        throw usage(fmt::format("report: --to: expected a time after --from {}, found {}",
                                *options.from, *options.to));
    }
    if (options.output == "-" && options.json) {
        throw usage("report: --json needs -o FILE, and not -o -");
    }
}

uint64_t nanoseconds_in(const std::optional<double> &seconds, uint64_t otherwise) {
    constexpr double second = 1e9, most = 1.8e19; // 2^64 and less
    return seconds ? static_cast<uint64_t>(std::min(*seconds * second, most)) : otherwise;
}

PartChoice part_of(const ReportOptions &options) {
    return {{nanoseconds_in(options.from, 0), nanoseconds_in(options.to, never)},
            options.step,
            options.device};
}

bool has_plugins(const ReportOptions &options) {
    return !options.plugin.empty() || !options.compare.empty();
}

// A replay has one device.
void check_devices(const Recorded &recorded) {
    if (recorded.is_snapshot()) {
        throw usage("report: --plugin and --compare need an event log or a trace; emm import makes "
                    "one of a snapshot");
    }
    const auto devices =
        std::count_if(recorded.histories.begin(), recorded.histories.end(),
                      [](const History &history) { return history.memory == Memory::device; });
    if (devices != 1) {
        throw usage(fmt::format("report: --plugin and --compare replay the device memory of one "
                                "device, and the recording has {}",
                                devices));
    }
}

class Report {
public:
    explicit Report(const ReportOptions &options) : options_(options), input_(options.input) {}

    int run() {
        const Json figures = !options_.output && options_.json ? make().at("figures") : make_page();
        progress_.clear();
        tell(figures);
        return is_whole(figures) ? 0 : 1;
    }

private:
    // Writes the page. Gives its figures.
    Json make_page() {
        page_ = options_.output.value_or("report.html");
        Output output(page_ == "-" ? "" : page_, {options_.input, options_.against});
        std::error_code none;
        replaces_ = std::filesystem::is_regular_file(page_, none);
        const Json document = make();
        progress_.show("writing " + observe::one_line(page_));
        write_page(output, document);
        output.finish();
        return document.at("figures");
    }

    Json make() {
        const Recorded recorded = read_recorded(input_, part_of(options_), [this](double share) {
            show("reading " + input_.name(), share);
        });
        std::vector<Replayed> replays;
        if (has_plugins(options_)) {
            check_devices(recorded);
            replays = replay_all(options_, input_, recorded.histories.front(),
                                 [this](const std::string &plugin, double share) {
                                     show("replaying on " + plugin, share);
                                 });
        }
        if (recorded.reserve) {
            replays.push_back(recorded_reserve(recorded.histories.front(), *recorded.reserve));
        }
        progress_.show("counting");
        Json document = document_of(input_.name(), recorded, replays,
                                    [this](double share) { show("counting", share); });
        if (!options_.against.empty()) {
            const Input before(options_.against);
            document["figures"]["changes"] = changes_json(
                before.name(),
                read_recorded(before, part_of(options_),
                              [&](double share) { show("reading " + before.name(), share); }),
                recorded);
        }
        return document;
    }

    void show(const std::string &what, double share) {
        if (pace_.is_due()) {
            progress_.show(observe::one_line(what), share);
        }
    }

    static bool is_whole(const Json &figures) {
        const Json &replays = figures.at("replays");
        return std::none_of(replays.begin(), replays.end(),
                            [](const Json &replay) { return replay.contains("error"); });
    }

    // On standard error if standard output has the page.
    void tell(const Json &figures) const {
        if (page_ == "-") {
            print_error(summary_text(figures));
            return;
        }
        Json report = {{"file", page_.empty() ? Json() : Json(page_)}};
        report.update(figures);
        if (options_.json) {
            print_json(report);
        } else {
            print(fmt::format("{}{}: the page{}\n", summary_text(figures), page_,
                              replaces_ ? ", in place of the file that was there" : ""));
        }
    }

    const ReportOptions &options_;
    std::string page_; // its file; empty: no file
    bool replaces_ = false;
    const Input input_;
    Progress progress_;
    Pace pace_;
};

} // namespace

int run_report(const ReportOptions &options) {
    check_report_usage(options);
    return Report(options).run();
}

} // namespace emm::tool

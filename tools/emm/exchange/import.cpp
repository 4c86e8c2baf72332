#include "commands.h"

#include "exchange/conversion.h"
#include "exchange/kineto.h"
#include "exchange/rmm_log.h"
#include "exchange/snapshot.h"
#include "observe/text.h"
#include "print.h"
#include "progress.h"
#include "table.h"
#include "trace/event_log.h"
#include "trace/file.h"
#include "usage.h"

#include <fmt/format.h>
#include <memory>
#include <nlohmann/json.hpp>

namespace emm::tool {
namespace {

std::string first_bytes(const Input &input) {
    ByteFile file(input.path(), input.name());
    std::string text(4096, '\0');
    size_t filled = 0;
    for (size_t got; filled < text.size() &&
                     (got = file.read(text.data() + filled, text.size() - filled)) > 0;) {
        filled += got;
    }
    text.resize(filled);
    return text;
}

// The format of the file, told by its first bytes.
std::string format_of(const Input &input) {
    constexpr char pickle = '\x80'; // PROTO
    const std::string text = first_bytes(input);
    const size_t word = text.find_first_not_of(" \t\r\n\xef\xbb\xbf");
    if (!text.empty() && text.front() == pickle) {
        return "torch-snapshot";
    }
    if (text.rfind(RmmLog::header, 0) == 0) {
        return "rmm";
    }
    if (word != std::string::npos && (text[word] == '{' || text[word] == '[')) {
        return "kineto";
    }
    const std::string_view first = std::string_view(text).substr(0, text.find_first_of("\r\n"));
    if (is_event_log(first)) {
        throw bad_file(input.name(), "",
                       Malformed("a recording of another program",
                                 "an event log, which emm replay and emm report take as it is"));
    }
    if (text.find("\n" + std::string(RmmLog::header)) != std::string::npos) {
        throw bad_file(input.name(), "",
                       Malformed("the header of an RMM log in the first line",
                                 in_quotes(first) + std::string(RmmLog::how_to_unmix)));
    }
    throw bad_file(input.name(), "",
                   Malformed("a PyTorch snapshot (a pickle), an RMM log or a Kineto trace (JSON)",
                             text.empty() ? "an empty file" : in_quotes(first)));
}

class Import {
public:
    explicit Import(const ImportOptions &options) : options_(options), input_(options.file) {}

    int run() {
        const std::string format = options_.from.empty() ? format_of(input_) : options_.from;
        if (options_.device && format == "rmm") {
            throw usage("import: --device is for snapshots and Kineto traces; an RMM log has no "
                        "devices");
        }
        Output output(options_.output, {options_.file});
        const std::unique_ptr<Recording> recording = open(format);
        const auto report = [this] { show_writing(); };
        const Conversion result = is_log() ? convert_to_log(*recording, output, report)
                                           : convert(*recording, output, report);
        if (result.allocations + result.live_before == 0) {
            throw bad_file(input_.name(), "", Malformed("allocations of device memory", "none"));
        }
        output.finish();
        progress_.clear();
        tell(*recording, result);
        return 0;
    }

private:
    std::unique_ptr<Recording> open(const std::string &format) {
        if (format == "rmm") {
            return std::make_unique<RmmLog>(input_.path(), input_.name(),
                                            [this](double share) { show(share); });
        }
        ByteFile file(input_.path(), input_.name());
        const auto source = [&](char *into, size_t most) {
            show(file.share());
            return file.read(into, most);
        };
        if (format == "kineto") {
            return std::make_unique<KinetoTrace>(source, input_.name(), options_.device);
        }
        return std::make_unique<Snapshot>(source, input_.name(), options_.device, is_log());
    }

    bool is_log() const { return options_.to == "event-log"; }

    void show(double share) {
        if (pace_.is_due()) {
            progress_.show("reading " + input_.name(), share);
        }
    }

    void show_writing() {
        if (pace_.is_due()) {
            progress_.show("writing the trace");
        }
    }

    // If the output is a file, standard output is free for the report.
    void tell(const Recording &recording, const Conversion &result) {
        if (options_.json) {
            print_json(json_of(recording, result));
            return;
        }
        const std::string text = summary(recording, result) + losses(recording, result);
        options_.output.empty() ? print_error(text) : print(text);
    }

    std::string summary(const Recording &recording, const Conversion &result) const {
        return fmt::format(
            "{}: {}: {}, {}, {}, {}, at most {} live\n", observe::one_line(input_.name()),
            recording.kind(), observe::counted(result.allocations, "allocation"),
            observe::counted(result.frees, "free"), observe::counted(result.threads, "thread"),
            observe::counted(result.streams, "stream"), in_bytes(result.peak_live_bytes));
    }

    static std::string losses(const Recording &recording, const Conversion &result) {
        std::string text;
        if (result.live_before != 0) {
            const bool is_ring = std::string_view(recording.kind()) == "PyTorch snapshot";
            text += fmt::format(
                "The recording lacks the allocations of {} ({}): {}. The trace allocates "
                "them at its start; what came and went before is not in it.\n",
                observe::counted(result.live_before, "block"), in_bytes(result.live_before_bytes),
                is_ring ? "the snapshot's ring has lost them, or it began later"
                        : "it began later");
        }
        if (recording.is_matched_by_size()) {
            text +=
                "The recording has no addresses: a free is that of the latest allocation of its "
                "size.\n";
        }
        if (result.missed_frees != 0) {
            text += fmt::format(
                "The recording lacks the frees of {}: their addresses are given out again, "
                "and the trace frees them there.\n",
                observe::counted(result.missed_frees, "block"));
        }
        if (result.stray_frees != 0) {
            text += fmt::format("{} left out: the address was free already.\n",
                                observe::counted(result.stray_frees, "free"));
        }
        return text;
    }

    Json json_of(const Recording &recording, const Conversion &result) const {
        return {{"file", input_.name()},
                {"kind", recording.kind()},
                {"trace", options_.output},
                {"allocations", result.allocations},
                {"frees", result.frees},
                {"threads", result.threads},
                {"streams", result.streams},
                {"peak_live_bytes", result.peak_live_bytes},
                {"matched_by_size", recording.is_matched_by_size()},
                {"live_before", result.live_before},
                {"live_before_bytes", result.live_before_bytes},
                {"missed_frees", result.missed_frees},
                {"stray_frees", result.stray_frees}};
    }

    const ImportOptions &options_;
    const Input input_;
    Progress progress_;
    Pace pace_;
};

} // namespace

int run_import(const ImportOptions &options) {
    if (options.json && options.output.empty()) {
        throw usage("import: --json needs -o FILE");
    }
    return Import(options).run();
}

} // namespace emm::tool

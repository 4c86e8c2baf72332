#include "top/view.h"

#include "observe/text.h"

#include <fmt/format.h>
#include <set>

namespace emm::tool::top {
namespace {

struct Sample {
    std::string labels; // between the braces
    const Process *process;
    const Context *context; // NULL: of the process
};

struct Family {
    const char *name, *type, *help;
    double (*value)(const Context &context);
};

template <uint64_t emm_stats::*member> double stat(const Context &context) {
    return static_cast<double>((*context.stats).*member);
}

// For contexts that have told their figures.
const Family families[] = {
    {"emm_live_bytes", "gauge", "Device memory handed out, as asked for.",
     stat<&emm_stats::live_bytes>},
    {"emm_live_allocations", "gauge", "Allocations of device memory that are live.",
     stat<&emm_stats::live_count>},
    {"emm_cached_bytes", "gauge", "Device memory held for later requests.",
     stat<&emm_stats::cached_bytes>},
    {"emm_largest_free_block_bytes", "gauge",
     "The largest piece of emm_cached_bytes that a request could have at once; 0: none, or not "
     "told.",
     stat<&emm_stats::largest_free_block>},
    {"emm_reserved_bytes", "gauge", "Device memory taken from the driver.",
     stat<&emm_stats::reserved_bytes>},
    {"emm_waiting_bytes", "gauge",
     "Device memory that was freed and waits for the device or for a deferred section.",
     stat<&emm_stats::pending_bytes>},
    {"emm_paused_bytes", "gauge",
     "Device memory that a paused pool takes again when it is resumed.",
     stat<&emm_stats::paused_bytes>},
    {"emm_spilled_bytes", "gauge",
     "Of emm_reserved_bytes, host memory that is used in place of the device's.",
     stat<&emm_stats::spilled_bytes>},
    {"emm_peak_live_bytes", "gauge", "The highest emm_live_bytes so far.",
     stat<&emm_stats::peak_live_bytes>},
    {"emm_peak_reserved_bytes", "gauge", "The highest emm_reserved_bytes so far.",
     stat<&emm_stats::peak_reserved_bytes>},
    {"emm_host_live_bytes", "gauge", "Pinned host memory handed out.",
     stat<&emm_stats::host_live_bytes>},
    {"emm_host_reserved_bytes", "gauge", "Pinned host memory taken from the driver.",
     stat<&emm_stats::host_reserved_bytes>},
    {"emm_allocations_total", "counter", "Allocations of device memory that succeeded.",
     stat<&emm_stats::allocations>},
    {"emm_frees_total", "counter", "Frees of device memory that succeeded.",
     stat<&emm_stats::frees>},
    {"emm_failures_total", "counter", "Allocations of device memory that failed.",
     stat<&emm_stats::failures>},
    {"emm_pending_frees", "gauge", "Frees on emm's own queue.",
     [](const Context &context) { return static_cast<double>(context.pending_frees); }},
    {"emm_pending_free_bytes", "gauge", "What the frees on emm's own queue are about.",
     [](const Context &context) { return static_cast<double>(context.pending_free_bytes); }},
    {"emm_limit_bytes", "gauge", "The device's bound (EMM_LIMIT); 0: none.",
     [](const Context &context) { return static_cast<double>(context.account.limit_bytes); }},
    {"emm_limit_used_bytes", "gauge", "What counts against the device's bound, in all contexts.",
     [](const Context &context) { return static_cast<double>(context.account.used_bytes); }},
    {"emm_program_bytes", "gauge",
     "Device memory that the program took from the driver itself, in all contexts.",
     [](const Context &context) { return static_cast<double>(context.account.program_bytes); }},
    {"emm_device_bytes", "gauge",
     "Memory of the device, as the driver tells; a limit of the plugin does not show.",
     [](const Context &context) { return static_cast<double>(context.total_bytes); }},
};

std::string label(const char *name, std::string_view value) {
    return fmt::format("{}=\"{}\"", name, escaped_label(value));
}

std::string process_labels(const Process &process) {
    return fmt::format("pid=\"{}\",", process.pid) + label("program", process.program);
}

std::string context_labels(const Process &process, const Context &context) {
    return fmt::format("{},{},device=\"{}\",{},context=\"{}\"{}", process_labels(process),
                       label("plugin", process.plugin), context.device, label("uuid", context.uuid),
                       context.id, context.pool.empty() ? "" : "," + label("pool", context.pool));
}

// A process with two copies of libemm, and process ids of two namespaces, can lead to the same
// labels, which the format forbids.
std::string unique(std::string labels, std::set<std::string> &known) {
    const std::string first = labels;
    for (int copy = 2; !known.insert(labels).second; ++copy) {
        labels = fmt::format("{},copy=\"{}\"", first, copy);
    }
    return labels;
}

std::string head(const char *name, const char *type, const char *help) {
    return fmt::format("# HELP {0} {1}\n# TYPE {0} {2}\n", name, help, type);
}

bool answers(const Process &process) {
    return process.problem.empty() && process.stuck == 0;
}

std::string about_processes(const std::vector<Sample> &samples) {
    std::string text = head("emm_process_answers", "gauge",
                            "1 if the process has told its figures in time, else 0.");
    for (const Sample &sample : samples) {
        text += fmt::format("emm_process_answers{{{}}} {}\n", sample.labels,
                            answers(*sample.process) ? 1 : 0);
    }
    text += head("emm_process_info", "gauge", "What serves the process. Always 1.");
    for (const Sample &sample : samples) {
        text +=
            fmt::format("emm_process_info{{{},{},{},{}}} 1\n", sample.labels,
                        label("emm", sample.process->emm), label("plugin", sample.process->plugin),
                        label("plugin_version", sample.process->plugin_version));
    }
    text += head("emm_contexts_left_out", "gauge",
                 "Pools of the process that have no samples here, because there are more than 64.");
    for (const Sample &sample : samples) {
        text += fmt::format("emm_contexts_left_out{{{}}} {}\n", sample.labels,
                            sample.process->contexts_left_out);
    }
    return text;
}

} // namespace

std::string escaped_label(std::string_view text) {
    std::string escaped;
    for (const char byte : observe::one_line(text)) {
        if (byte == '\\' || byte == '"') {
            escaped += '\\';
        }
        escaped += byte;
    }
    return escaped;
}

std::string prometheus_text(const std::vector<Process> &processes) {
    std::set<std::string> known;
    std::vector<Sample> of_processes, of_contexts;
    for (const Process &process : processes) {
        of_processes.push_back({unique(process_labels(process), known), &process, nullptr});
        for (const Context &context : process.contexts) {
            if (context.stats) {
                of_contexts.push_back(
                    {unique(context_labels(process, context), known), &process, &context});
            }
        }
    }
    std::string text = about_processes(of_processes);
    for (const Family &family : families) {
        text += head(family.name, family.type, family.help);
        for (const Sample &sample : of_contexts) {
            text += fmt::format("{}{{{}}} {:.17g}\n", family.name, sample.labels,
                                family.value(*sample.context));
        }
    }
    return text;
}

} // namespace emm::tool::top

#include "monitor/answer.h"

#include "driver/limit.h"
#include "observe/descriptors.h"
#include "observe/json.h"
#include "observe/process.h"
#include "observe/text.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <span>
#include <unistd.h>

namespace emm::monitor {

using observe::json_array, observe::json_quoted, observe::json_quoted_or_null;

namespace {

constexpr size_t longest_name = 256, longest_command = 512, longest_problem = 300; // bytes
constexpr size_t longest_refusal = 1024;
constexpr size_t longest_report = 64 * 1024;

std::string shortened(std::string_view text, size_t longest) {
    return observe::one_line(text.substr(0, longest));
}

std::string command_line() {
    char bytes[longest_command];
    std::string text(observe::read_start("/proc/self/cmdline", bytes, sizeof bytes));
    std::replace(text.begin(), text.end(), '\0', ' ');
    text.erase(text.find_last_not_of(' ') + 1);
    return text;
}

std::string name_or_null(const std::string *name) {
    return name ? json_quoted(shortened(*name, longest_name)) : "null";
}

std::string stats_json(const emm_stats &stats) {
    return fmt::format(
        R"({{"live_bytes":{},"live_count":{},"cached_bytes":{},"reserved_bytes":{},)"
        R"("peak_live_bytes":{},"peak_reserved_bytes":{},"pending_bytes":{},"allocations":{},)"
        R"("frees":{},"failures":{},"host_live_bytes":{},"host_reserved_bytes":{},)"
        R"("largest_free_block":{},"paused_bytes":{},"spilled_bytes":{}}})",
        stats.live_bytes, stats.live_count, stats.cached_bytes, stats.reserved_bytes,
        stats.peak_live_bytes, stats.peak_reserved_bytes, stats.pending_bytes, stats.allocations,
        stats.frees, stats.failures, stats.host_live_bytes, stats.host_reserved_bytes,
        stats.largest_free_block, stats.paused_bytes, stats.spilled_bytes);
}

std::string oldest_json(const std::vector<OldAllocation> &oldest) {
    const std::span shown = std::span(oldest).first(std::min(oldest.size(), most_oldest));
    return json_array(shown, [](const OldAllocation &one) {
        return fmt::format(R"({{"size":{},"age_ns":{},"module":{},"caller":{}}})", one.size,
                           one.age, json_quoted(shortened(one.module, longest_name)),
                           json_quoted(shortened(one.caller, longest_name)));
    });
}

std::string account_json(const AccountFigures &account) {
    return fmt::format(
        R"({{"limit_bytes":{},"used_bytes":{},"managers_bytes":{},"program_bytes":{},"group":{}}})",
        account.limit_bytes, account.used_bytes, account.managers_bytes, account.program_bytes,
        json_quoted_or_null(account.group));
}

std::string context_json(const ContextFigures &context) {
    const uint32_t(&pci)[3] = context.pci;
    return fmt::format(
        R"({{"device":{},"context":{},"pool":{},"spec":{},"changed_options":{},"uuid":"{}",)"
        R"("pci":"{:08x}:{:02x}:{:02x}.0","total_bytes":{},"pending_frees":{},"pending_free_bytes":{},"at_ns":{},"stats":{},)"
        R"("account":{},"problem":{},"oldest":{}}})",
        context.device, context.id, json_quoted(context.pool),
        json_quoted(shortened(context.spec, longest_name)),
        json_quoted(shortened(context.changed_options, longest_name)),
        driver::uuid_text(context.uuid), pci[0], pci[1], pci[2], context.total_bytes,
        context.pending_frees, context.pending_free_bytes, context.at,
        context.stats ? stats_json(*context.stats) : "null", account_json(context.account),
        context.stats ? "null" : json_quoted(shortened(context.problem, longest_problem)),
        oldest_json(context.oldest));
}

// Bounds of the answer's parts.
struct Limits {
    size_t contexts = most_contexts;
    size_t report = longest_report; // bytes
};

std::string contexts_json(const Collected &collected, size_t most) {
    const std::span contexts(collected.contexts);
    const std::span shown = contexts.first(std::min(most, contexts.size()));
    return fmt::format(R"("contexts":{},"contexts_left_out":{})", json_array(shown, context_json),
                       contexts.size() - shown.size());
}

std::string report_json(const Collected &collected, size_t most) {
    return R"("report":)" + (collected.report.empty()
                                 ? "null"
                                 : json_quoted(std::string_view(collected.report).substr(0, most)));
}

std::string body(RequestKind kind, const Program &program, const loader::Plugin *plugin,
                 const Collected &collected, const Limits &limits) {
    return fmt::format(
        R"({{"emm":{},"pid":{},"program":{},"command":{},"plugin":{},)"
        R"("plugin_version":{},"stuck_ns":{},"held":{},{}}})",
        json_quoted(EMM_VERSION), program.pid, json_quoted(shortened(program.name, longest_name)),
        json_quoted(shortened(program.command, longest_command)),
        name_or_null(plugin ? &plugin->name : nullptr),
        name_or_null(plugin ? &plugin->version : nullptr), collected.stuck, collected.is_held,
        kind == RequestKind::report ? report_json(collected, limits.report)
                                    : contexts_json(collected, limits.contexts));
}

std::string message(const std::string &text) {
    const AnswerHeader header = {protocol_magic, protocol_version,
                                 static_cast<uint32_t>(text.size()), 0};
    return std::string(reinterpret_cast<const char *>(&header), sizeof header) + text;
}

} // namespace

Program this_program() {
    return {getpid(), observe::program_name(), command_line()};
}

std::string answer(RequestKind kind, const Program &program, const loader::Plugin *plugin,
                   const Collected &collected) {
    Limits limits;
    std::string text = message(body(kind, program, plugin, collected, limits));
    while (text.size() > longest_answer && limits.contexts > 0) {
        limits = {limits.contexts / 2, limits.report / 2};
        text = message(body(kind, program, plugin, collected, limits));
    }
    return text;
}

std::string answer_to_set(const Collected &collected) {
    const std::string problem = collected.set_problem.value_or(
        "its plugin has not answered yet, and may still change the option");
    return message(fmt::format(
        R"({{"emm":{},"pid":{},"set_problem":{},"set_pools":{},"set_above":{}}})",
        json_quoted(EMM_VERSION), getpid(), json_quoted(shortened(problem, longest_refusal)),
        collected.set_pools, json_quoted(collected.set_above)));
}

namespace {

// As many callers as fit, with their frames, numbered within the answer.
class ProfileText {
public:
    explicit ProfileText(const core::LiveProfile &profile) : profile_(profile) {
        for (const core::LiveProfile::Caller &caller : profile.callers) {
            add(caller);
        }
    }

    std::string json() const {
        return fmt::format(R"({{"is_tracked":{},"sample":{},"lost":{},"frames":[{}],)"
                           R"("callers":[{}],"others":[{},{}]}})",
                           profile_.is_tracked, profile_.sample, profile_.lost, frames_, callers_,
                           other_bytes_, other_count_);
    }

private:
    static constexpr size_t room = longest_answer - 1024; // other keys need the difference

    void add(const core::LiveProfile::Caller &caller) {
        std::string frames, numbers;
        std::map<uint32_t, size_t> added = numbers_;
        for (const uint32_t frame : caller.frames) {
            const auto [known, is_new] = added.try_emplace(frame, added.size());
            numbers += fmt::format("{}{}", numbers.empty() ? "" : ",", known->second);
            frames += is_new ? (frames_.empty() && frames.empty() ? "" : ",") + text_of(frame) : "";
        }
        const std::string text = fmt::format("{}[{},{},{},{},[{}],{}]", callers_.empty() ? "" : ",",
                                             caller.device, caller.memory, caller.bytes,
                                             caller.count, numbers, json_quoted(caller.tag));
        if (other_count_ != 0 ||
            frames_.size() + callers_.size() + frames.size() + text.size() > room) {
            other_bytes_ += caller.bytes;
            other_count_ += caller.count;
            return;
        }
        frames_ += frames;
        callers_ += text;
        numbers_ = std::move(added);
    }

    std::string text_of(uint32_t number) const {
        const core::LiveProfile::Frame &frame = profile_.frames[number];
        return fmt::format("[{},{},{}]", json_quoted(shortened(frame.file, longest_name)),
                           json_quoted(shortened(frame.function, longest_name)), frame.line);
    }

    const core::LiveProfile &profile_;
    std::string frames_, callers_;
    std::map<uint32_t, size_t> numbers_; // of frames, in the answer
    uint64_t other_bytes_ = 0, other_count_ = 0;
};

} // namespace

std::string answer_to_profile(const Collected &collected) {
    return message(
        fmt::format(R"({{"emm":{},"pid":{},"profile":{}}})", json_quoted(EMM_VERSION), getpid(),
                    collected.profile ? ProfileText(*collected.profile).json() : "null"));
}

std::string answer_to_outside(const OutsideDone &done) {
    std::vector<PausedPool> pools = done.pools;
    std::stable_partition(pools.begin(), pools.end(),
                          [](const PausedPool &pool) { return !pool.stays.empty(); });
    uint64_t bytes = 0;
    for (const PausedPool &pool : pools) {
        bytes += pool.bytes;
    }
    const std::span shown = std::span(pools).first(std::min(pools.size(), most_contexts));
    const std::string list = json_array(shown, [](const PausedPool &pool) {
        return fmt::format(R"({{"device":{},"context":{},"pool":{},"bytes":{},"stays":{}}})",
                           pool.device, pool.context,
                           json_quoted(shortened(pool.pool, longest_name)), pool.bytes,
                           json_quoted(shortened(pool.stays, longest_problem)));
    });
    return message(fmt::format(
        R"({{"emm":{},"pid":{},"pause_problem":{},"pause_ns":{},"pause_bytes":{},)"
        R"("pause_pools":{},"pause_pools_left_out":{}}})",
        json_quoted(EMM_VERSION), getpid(), json_quoted(shortened(done.problem, longest_refusal)),
        done.nanoseconds, bytes, list, pools.size() - shown.size()));
}

std::string answer_to_limit(const std::string &problem, const std::string &above) {
    return message(fmt::format(
        R"({{"emm":{},"pid":{},"limit_problem":{},"limit_above":{}}})", json_quoted(EMM_VERSION),
        getpid(), json_quoted(shortened(problem, longest_refusal)), json_quoted(above)));
}

} // namespace emm::monitor

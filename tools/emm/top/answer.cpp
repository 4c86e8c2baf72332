#include "top/process.h"

#include "monitor/protocol.h"
#include "observe/text.h"
#include "problem.h"

#include <cstring>
#include <fmt/format.h>
#include <limits>
#include <nlohmann/json.hpp>

namespace emm::tool::top {
namespace {

using monitor::AnswerHeader;

const Json *member(const Json &object, const char *key) {
    const auto found = object.find(key);
    return found == object.end() ? nullptr : &*found;
}

uint64_t number_at(const Json &object, const char *key) {
    const Json *const value = member(object, key);
    return value && value->is_number_unsigned() ? value->get<uint64_t>() : 0;
}

int64_t signed_at(const Json &object, const char *key) {
    const Json *const value = member(object, key);
    if (!value || !value->is_number_integer() ||
        (value->is_number_unsigned() &&
         value->get<uint64_t>() > uint64_t(std::numeric_limits<int64_t>::max()))) {
        return 0;
    }
    return value->get<int64_t>();
}

std::string text_at(const Json &object, const char *key) {
    const Json *const value = member(object, key);
    return value && value->is_string() ? observe::one_line(value->get_ref<const std::string &>())
                                       : "";
}

// A report has several lines.
std::string lines_at(const Json &object, const char *key) {
    const Json *const value = member(object, key);
    std::string text;
    if (!value || !value->is_string()) {
        return text;
    }
    std::string_view rest = value->get_ref<const std::string &>();
    while (!rest.empty()) {
        const size_t end = std::min(rest.find('\n'), rest.size());
        text += observe::one_line(rest.substr(0, end)) + "\n";
        rest.remove_prefix(std::min(end + 1, rest.size()));
    }
    return text;
}

// The elements of a list; empty if there is no list.
Json list_at(const Json &object, const char *key) {
    const Json *const value = member(object, key);
    return value && value->is_array() ? *value : Json::array();
}

std::optional<emm_stats> stats_at(const Json &object) {
    const Json *const value = member(object, "stats");
    if (!value || !value->is_object()) {
        return std::nullopt;
    }
    auto stats = sized<emm_stats>();
    stats.live_bytes = number_at(*value, "live_bytes");
    stats.live_count = number_at(*value, "live_count");
    stats.cached_bytes = number_at(*value, "cached_bytes");
    stats.reserved_bytes = number_at(*value, "reserved_bytes");
    stats.peak_live_bytes = number_at(*value, "peak_live_bytes");
    stats.peak_reserved_bytes = number_at(*value, "peak_reserved_bytes");
    stats.allocations = number_at(*value, "allocations");
    stats.frees = number_at(*value, "frees");
    stats.failures = number_at(*value, "failures");
    stats.pending_bytes = number_at(*value, "pending_bytes");
    stats.host_live_bytes = number_at(*value, "host_live_bytes");
    stats.host_reserved_bytes = number_at(*value, "host_reserved_bytes");
    stats.largest_free_block = number_at(*value, "largest_free_block");
    stats.paused_bytes = number_at(*value, "paused_bytes");
    stats.spilled_bytes = number_at(*value, "spilled_bytes");
    return stats;
}

std::vector<OldAllocation> oldest_at(const Json &object) {
    std::vector<OldAllocation> oldest;
    for (const Json &each : list_at(object, "oldest")) {
        if (each.is_object()) {
            oldest.push_back({number_at(each, "size"), signed_at(each, "age_ns"),
                              text_at(each, "module"), text_at(each, "caller")});
        }
    }
    return oldest;
}

Account account_at(const Json &object) {
    const Json *const value = member(object, "account");
    return value && value->is_object()
               ? Account{number_at(*value, "limit_bytes"), number_at(*value, "used_bytes"),
                         number_at(*value, "managers_bytes"), number_at(*value, "program_bytes"),
                         text_at(*value, "group")}
               : Account();
}

Context context_from(const Json &json) {
    Context context;
    context.device = signed_at(json, "device");
    context.id = number_at(json, "context");
    context.pool = text_at(json, "pool");
    context.spec = text_at(json, "spec");
    context.changed_options = text_at(json, "changed_options");
    context.uuid = text_at(json, "uuid");
    context.pci = text_at(json, "pci");
    context.total_bytes = number_at(json, "total_bytes");
    context.pending_frees = number_at(json, "pending_frees");
    context.pending_free_bytes = number_at(json, "pending_free_bytes");
    context.account = account_at(json);
    context.stats = stats_at(json);
    context.at = signed_at(json, "at_ns");
    context.problem = text_at(json, "problem");
    context.oldest = oldest_at(json);
    if (!context.stats && context.problem.empty()) {
        context.problem = "it tells no figures";
    }
    return context;
}

std::vector<PausedPool> pools_at(const Json &object) {
    std::vector<PausedPool> pools;
    for (const Json &each : list_at(object, "pause_pools")) {
        if (each.is_object()) {
            pools.push_back({signed_at(each, "device"), number_at(each, "context"),
                             text_at(each, "pool"), number_at(each, "bytes"),
                             text_at(each, "stays")});
        }
    }
    return pools;
}

uint64_t number_in(const Json &list, size_t at) {
    return list.is_array() && at < list.size() && list[at].is_number_unsigned()
               ? list[at].get<uint64_t>()
               : 0;
}

std::string text_in(const Json &list, size_t at) {
    return list.is_array() && at < list.size() && list[at].is_string()
               ? observe::one_line(list[at].get_ref<const std::string &>())
               : "";
}

std::optional<LiveProfile> profile_at(const Json &object) {
    const Json *const value = member(object, "profile");
    if (!value || !value->is_object()) {
        return std::nullopt;
    }
    LiveProfile profile;
    profile.is_tracked = value->value("is_tracked", Json()) == true;
    profile.sample = number_at(*value, "sample");
    profile.lost = number_at(*value, "lost");
    for (const Json &each : list_at(*value, "frames")) {
        profile.frames.push_back({text_in(each, 0), text_in(each, 1), number_in(each, 2)});
    }
    for (const Json &each : list_at(*value, "callers")) {
        LiveProfile::Caller caller = {
            number_in(each, 0), number_in(each, 1), number_in(each, 2), number_in(each, 3), {},
            text_in(each, 5)};
        const Json numbers = each.is_array() && each.size() > 4 ? each[4] : Json();
        for (size_t i = 0; i < numbers.size(); ++i) {
            if (number_in(numbers, i) < profile.frames.size()) {
                caller.frames.push_back(number_in(numbers, i));
            }
        }
        profile.callers.push_back(std::move(caller));
    }
    const Json others = list_at(*value, "others");
    profile.other_bytes = number_in(others, 0);
    profile.other_count = number_in(others, 1);
    return profile;
}

void take_over(const Json &json, Process &ret_process) {
    if (ret_process.pid == 0) { // of another process namespace
        ret_process.pid = signed_at(json, "pid");
    }
    if (const std::string program = text_at(json, "program"); !program.empty()) {
        ret_process.program = program; // without this, it has no /proc
    }
    ret_process.command = text_at(json, "command");
    ret_process.emm = text_at(json, "emm");
    ret_process.plugin = text_at(json, "plugin");
    ret_process.plugin_version = text_at(json, "plugin_version");
    ret_process.stuck = signed_at(json, "stuck_ns");
    ret_process.contexts_left_out = number_at(json, "contexts_left_out");
    ret_process.report = lines_at(json, "report");
    if (member(json, "set_problem")) {
        ret_process.set_problem = text_at(json, "set_problem");
        ret_process.set_pools = number_at(json, "set_pools");
        ret_process.set_above = text_at(json, "set_above");
    }
    if (member(json, "limit_problem")) {
        ret_process.limit_problem = text_at(json, "limit_problem");
        ret_process.limit_above = text_at(json, "limit_above");
    }
    ret_process.profile = profile_at(json);
    ret_process.is_held = json.value("held", Json()) == true;
    if (member(json, "pause_problem")) {
        ret_process.pause_problem = text_at(json, "pause_problem");
        ret_process.pause_nanoseconds = signed_at(json, "pause_ns");
        ret_process.pause_pools = pools_at(json);
        ret_process.pause_pools_left_out = number_at(json, "pause_pools_left_out");
        for (const PausedPool &pool : ret_process.pause_pools) {
            ret_process.pause_bytes += pool.bytes;
        }
        if (member(json, "pause_bytes")) { // earlier versions do not tell the sum
            ret_process.pause_bytes = number_at(json, "pause_bytes");
        }
    }
    const Json *const contexts = member(json, "contexts");
    for (size_t i = 0; contexts && contexts->is_array() && i < contexts->size(); ++i) {
        if ((*contexts)[i].is_object() && i < monitor::most_contexts) {
            ret_process.contexts.push_back(context_from((*contexts)[i]));
        }
    }
}

// Describes a message that is no answer; "": its header is right.
std::string header_problem(std::string_view message) {
    AnswerHeader header = {};
    if (message.size() < sizeof header) {
        return fmt::format("{} bytes", message.size());
    }
    std::memcpy(&header, message.data(), sizeof header);
    if (header.magic != monitor::protocol_magic) {
        return "something else";
    }
    if (header.version != monitor::protocol_version) {
        return fmt::format("version {}", header.version);
    }
    const size_t size = message.size() - sizeof header;
    return header.size == size ? "" : fmt::format("{} bytes of {}", size, header.size);
}

} // namespace

void read_answer(std::string_view message, Process &ret_process) {
    std::string found = header_problem(message);
    if (found.empty()) {
        const Json json = Json::parse(message.substr(sizeof(AnswerHeader)), nullptr, false);
        if (json.is_object()) {
            take_over(json, ret_process);
            return;
        }
        found = "something other than a JSON object";
    }
    ret_process.problem =
        fmt::format("its answer: expected version {}, found {}", monitor::protocol_version, found);
}

} // namespace emm::tool::top

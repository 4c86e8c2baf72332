#include "monitor/answer.h"

#include "observe/descriptors.h"
#include "observe/text.h"

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include <algorithm>
#include <fcntl.h>
#include <unistd.h>

namespace emm::monitor {
namespace {

using Json = nlohmann::ordered_json;

constexpr size_t longest_name = 256, longest_command = 512, longest_problem = 300; // bytes
constexpr size_t longest_report = 64 * 1024;

std::string shortened(std::string_view text, size_t longest) {
    return observe::one_line(text.substr(0, longest));
}

std::string command_line() {
    char bytes[longest_command];
    const int file =
        observe::make_own([] { return open("/proc/self/cmdline", O_RDONLY | O_CLOEXEC); });
    const ssize_t got = file < 0 ? -1 : read(file, bytes, sizeof bytes);
    if (file >= 0) {
        observe::forget_and_close(file);
    }
    std::string text(bytes, got > 0 ? static_cast<size_t>(got) : 0);
    std::replace(text.begin(), text.end(), '\0', ' ');
    text.erase(text.find_last_not_of(' ') + 1);
    return text;
}

std::string program_name() {
    char bytes[4096];
    const ssize_t got = readlink("/proc/self/exe", bytes, sizeof bytes);
    const std::string_view path(bytes, got > 0 ? static_cast<size_t>(got) : 0);
    return std::string(path.substr(path.rfind('/') + 1));
}

std::string uuid_text(const uint8_t (&uuid)[16]) {
    std::string text = "GPU";
    for (size_t i = 0; i < sizeof uuid; ++i) {
        text += fmt::format("{}{:02x}", i == 0 || i == 4 || i == 6 || i == 8 || i == 10 ? "-" : "",
                            uuid[i]);
    }
    return text;
}

Json stats_json(const emm_stats &stats) {
    return {{"live_bytes", stats.live_bytes},
            {"live_count", stats.live_count},
            {"cached_bytes", stats.cached_bytes},
            {"reserved_bytes", stats.reserved_bytes},
            {"peak_live_bytes", stats.peak_live_bytes},
            {"peak_reserved_bytes", stats.peak_reserved_bytes},
            {"pending_bytes", stats.pending_bytes},
            {"allocations", stats.allocations},
            {"frees", stats.frees},
            {"failures", stats.failures},
            {"host_live_bytes", stats.host_live_bytes},
            {"host_reserved_bytes", stats.host_reserved_bytes}};
}

Json context_json(const ContextFigures &context) {
    Json json = {
        {"device", context.device},
        {"context", context.id},
        {"uuid", uuid_text(context.uuid)},
        {"pci",
         fmt::format("{:08x}:{:02x}:{:02x}.0", context.pci[0], context.pci[1], context.pci[2])},
        {"total_bytes", context.total_bytes},
        {"pending_frees", context.pending_frees},
        {"pending_free_bytes", context.pending_free_bytes},
        {"at_ns", context.at},
        {"stats", context.stats ? stats_json(*context.stats) : Json()},
        {"problem", context.stats ? Json() : Json(shortened(context.problem, longest_problem))}};
    for (size_t i = 0; i < std::min(context.oldest.size(), most_oldest); ++i) {
        const OldAllocation &each = context.oldest[i];
        json["oldest"].push_back({{"size", each.size},
                                  {"age_ns", each.age},
                                  {"module", shortened(each.module, longest_name)}});
    }
    return json;
}

// How much of it is told.
struct Limits {
    size_t contexts = most_contexts;
    size_t report = longest_report; // bytes
};

Json body(Wish wish, const Program &program, const loader::Plugin *plugin,
          const Collected &collected, const Limits &limits) {
    Json json = {
        {"emm", EMM_VERSION},
        {"pid", program.pid},
        {"program", shortened(program.name, longest_name)},
        {"command", shortened(program.command, longest_command)},
        {"plugin", plugin ? Json(shortened(plugin->name, longest_name)) : Json()},
        {"plugin_version", plugin ? Json(shortened(plugin->version, longest_name)) : Json()},
        {"stuck_ns", collected.stuck}};
    if (wish == Wish::report) {
        json["report"] =
            collected.report.empty() ? Json() : Json(collected.report.substr(0, limits.report));
        return json;
    }
    const size_t shown = std::min(limits.contexts, collected.contexts.size());
    json["contexts"] = Json::array();
    for (size_t i = 0; i < shown; ++i) {
        json["contexts"].push_back(context_json(collected.contexts[i]));
    }
    json["contexts_left_out"] = collected.contexts.size() - shown;
    return json;
}

std::string message(const Json &json) {
    const std::string text = json.dump(-1, ' ', false, Json::error_handler_t::replace);
    const AnswerHeader header = {protocol_magic, protocol_version,
                                 static_cast<uint32_t>(text.size()), 0};
    return std::string(reinterpret_cast<const char *>(&header), sizeof header) + text;
}

} // namespace

Program this_program() {
    return {getpid(), program_name(), command_line()};
}

std::string answer(Wish wish, const Program &program, const loader::Plugin *plugin,
                   const Collected &collected) {
    Limits limits;
    std::string text = message(body(wish, program, plugin, collected, limits));
    while (text.size() > longest_answer && limits.contexts > 0) {
        limits = {limits.contexts / 2, limits.report / 2};
        text = message(body(wish, program, plugin, collected, limits));
    }
    return text;
}

} // namespace emm::monitor

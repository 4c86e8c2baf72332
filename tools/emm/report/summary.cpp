#include "report/document.h"

#include "observe/text.h"
#include "table.h"
#include "trace/trace.h"

#include <algorithm>
#include <fmt/format.h>
#include <nlohmann/json.hpp>

namespace emm::tool {
namespace {

uint64_t number_in(const Json &object, const char *key) {
    return object.at(key).get<uint64_t>();
}

std::string bytes_in(const Json &object, const char *key) {
    return in_bytes(number_in(object, key));
}

double in_seconds(const Json &object, const char *key) {
    return static_cast<double>(number_in(object, key)) * 1e-9;
}

std::string share_of(const Json &group, uint64_t all, bool is_lifetime) {
    const double share =
        all == 0 ? 0 : 100 * group.at("bytes").get<double>() / static_cast<double>(all);
    const std::string name = observe::one_line(group.at("name").get<std::string>());
    const char *const link = !is_lifetime                    ? "by"
                             : name.ends_with("of the time") ? "in blocks that lived"
                                                             : "in blocks";
    return share < 1 ? fmt::format("under 1 % {} {}", link, name)
                     : fmt::format("{:.0f} % {} {}", share, link, name);
}

// Lifetimes tell more about memory of a single caller, but the caller is told too.
std::string only_caller(const Json &memory) {
    const Json &groups = memory.at("at_peak");
    return groups.contains("caller") && groups.at("caller").size() == 1
               ? fmt::format(
                     "all by {}; ",
                     observe::one_line(groups.at("caller")[0].at("name").get<std::string>()))
               : "";
}

// The three largest answers to the most telling question, as on the page.
std::string made_of(const Json &memory) {
    const std::string question = memory.at("leading").get<std::string>();
    std::string text = question == "lifetime" ? only_caller(memory) : "";
    const size_t begin = text.size();
    Json groups = Json::array();
    for (const Json &group : memory.at("at_peak").at(question)) {
        if (group.at("name") != "others") {
            groups.push_back(group);
        }
    }
    std::stable_sort(groups.begin(), groups.end(), [](const Json &one, const Json &other) {
        return number_in(one, "bytes") > number_in(other, "bytes");
    });
    const bool is_lifetime = question == "lifetime";
    for (size_t i = 0; i < std::min<size_t>(3, groups.size()); i++) {
        if (number_in(groups[i], "bytes") == 0) {
            break;
        }
        text += (text.size() == begin ? "" : ", ") +
                share_of(groups[i], number_in(memory, "peak_live_bytes"), is_lifetime);
    }
    return text;
}

std::string memory_line(const Json &memory) {
    return fmt::format("  device {}, {}: at most {} in {}, at {:.6f} s: {}\n",
                       number_in(memory, "device"), memory.at("memory").get<std::string>(),
                       bytes_in(memory, "peak_live_bytes"),
                       observe::counted(number_in(memory, "peak_live_blocks"), "block"),
                       in_seconds(memory, "peak_time_ns"), made_of(memory));
}

std::string replay_line(const Json &replay) {
    const std::string plugin = observe::one_line(replay.at("plugin").get<std::string>());
    if (replay.contains("error")) {
        return fmt::format("  {}: {}\n", plugin,
                           observe::one_line(replay.at("error").at("message").get<std::string>()));
    }
    if (replay.at("is_recorded").get<bool>()) {
        return fmt::format("  {}: at most {} reserved, at {:.6f} s, with {} live\n", plugin,
                           bytes_in(replay, "peak_reserved_bytes"),
                           in_seconds(replay, "peak_reserved_time_ns"),
                           bytes_in(replay, "live_then_bytes"));
    }
    return fmt::format("  {}{}: at most {} reserved, at {:.6f} s, with {} live; {} driver calls; "
                       "{} failed\n",
                       plugin, replay.at("simulated").get<bool>() ? " on the SIMULATED driver" : "",
                       bytes_in(replay, "peak_reserved_bytes"),
                       in_seconds(replay, "peak_reserved_time_ns"),
                       bytes_in(replay, "live_then_bytes"), number_in(replay, "driver_calls_total"),
                       number_in(replay, "failed"));
}

// The peaks, and the largest part of their difference.
std::string changes_line(const Json &changes) {
    const auto pair_text = [](const Json &pair) {
        return fmt::format("{}, was {}", in_bytes(pair[1].get<uint64_t>()),
                           in_bytes(pair[0].get<uint64_t>()));
    };
    const Json &first = changes.at("rows").at(0);
    return fmt::format("  against {}: at most {}; most of it by {}: {}\n",
                       observe::one_line(changes.at("before").get<std::string>()),
                       pair_text(changes.at("peak_live_bytes")),
                       observe::one_line(first.at("name").get<std::string>()),
                       pair_text(first.at("peak_bytes")));
}

// Counts drops of all kinds of memory.
std::string drops_line(const Json &all_memory) {
    Drops drops;
    for (const Json &memory : all_memory) {
        drops.by_reset += number_in(memory, "dropped_by_reset");
        drops.with_context += number_in(memory, "dropped_with_context");
    }
    return drops.all() == 0
               ? ""
               : fmt::format("  {} ended without a free{}\n",
                             observe::counted(drops.all(), "block"), drops_text(drops));
}

} // namespace

std::string summary_text(const Json &figures) {
    std::string text =
        fmt::format("{}, {}: {}\n", observe::one_line(figures.at("input").get<std::string>()),
                    figures.at("kind").get<std::string>(),
                    observe::counted(number_in(figures, "events"), "event"));
    for (const Json &memory : figures.at("memory")) {
        text += memory_line(memory);
    }
    text += drops_line(figures.at("memory"));
    for (const Json &replay : figures.at("replays")) {
        text += replay_line(replay);
    }
    if (figures.contains("changes")) {
        text += changes_line(figures.at("changes"));
    }
    if (number_in(figures, "failures") > 0) {
        text +=
            fmt::format("  {} failed\n", observe::counted(number_in(figures, "failures"), "call"));
    }
    return text;
}

} // namespace emm::tool

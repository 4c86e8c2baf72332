#include "driver/limit.h"

#include "commands.h"
#include "driver/shared_group.h"
#include "group.h"
#include "observe/text.h"
#include "print.h"
#include "problem.h"
#include "top/inquiry.h"
#include "usage.h"

#include <algorithm>
#include <cstdlib>
#include <fmt/format.h>
#include <nlohmann/json.hpp>

namespace emm::tool {
namespace top {
namespace {

constexpr size_t most_digits = 7; // PID_MAX_LIMIT of Linux has these

Failure failure(std::string message) {
    return Failure({.stage = "limit", .message = "limit: " + std::move(message)});
}

bool is_process_id(const std::string &text) {
    return !text.empty() && text.size() <= most_digits &&
           std::all_of(text.begin(), text.end(), [](char c) { return c >= '0' && c <= '9'; });
}

// The number of bounded processes, and whether they use more than the bound.
struct Limited {
    size_t processes = 1;
    std::string above;
};

Limited limit_process(int64_t pid, const std::string &size) {
    if (size.size() > monitor::longest_rest) {
        throw usage(fmt::format("limit: expected at most {} bytes, found {}", monitor::longest_rest,
                                size.size()));
    }
    const Process process = Inquiry().ask(pid, monitor::RequestKind::limit, "limit", size);
    if (!process.limit_problem) {
        throw failure(
            fmt::format("process {}: {}", pid,
                        process.problem.empty() ? "its answer is not emm's" : process.problem));
    }
    if (!process.limit_problem->empty()) {
        throw failure(fmt::format("process {}: {}", pid, *process.limit_problem));
    }
    return {1, process.limit_above};
}

// The members that can be asked; other members are bound as well.
std::vector<Name> sockets_of(const driver::SharedState &state, size_t &ret_members) {
    std::vector<Name> names;
    for (unsigned i = 0; i < slots_in_use(state); i++) {
        const driver::SharedMember &member = state.members[i];
        const uint64_t pid = member.pid.load(), random = member.random.load();
        ret_members += member.ticket.load() != 0;
        if (member.ticket.load() != 0 && random != 0) {
            names.push_back({std::string(std::string_view(monitor::SocketName(pid, random))),
                             static_cast<int64_t>(pid)});
        }
    }
    return names;
}

Limited limit_group(const std::string &name, const std::vector<driver::Limit> &limits) {
    std::string path;
    driver::GroupFile file;
    std::string problem = open_group(name, file, path);
    if (!problem.empty()) {
        throw failure(problem);
    }
    size_t members = 0;
    const std::vector<Name> names = sockets_of(file.state(), members);
    if (members == 0) {
        throw failure(fmt::format("all processes of the group '{}' have ended", name));
    }
    problem = driver::change_bounds(file, limits);
    if (!problem.empty()) {
        throw failure(problem);
    }
    Inquiry().ask_to_trim(names);
    return {members, driver::above_bounds_text(file)};
}

} // namespace
} // namespace top

int run_limit(const LimitOptions &options) {
    std::vector<driver::Limit> limits;
    if (const std::string problem = driver::parse_limits(options.size, limits); !problem.empty()) {
        throw usage("limit: " + problem);
    }
    top::Limited limited;
    if (top::is_process_id(options.whose)) {
        limited = top::limit_process(std::atoll(options.whose.c_str()), options.size);
    } else if (const std::string problem = driver::group_name_problem(options.whose);
               !problem.empty()) {
        throw usage("limit: neither a process id nor a group's name: " + problem);
    } else {
        limited = top::limit_group(options.whose, limits);
    }
    if (options.json) {
        print_json(Json{{"processes", limited.processes},
                        {"limit", options.size},
                        {"above", limited.above.empty() ? Json() : Json(limited.above)}});
    } else {
        print(fmt::format("{} for {}{}{}\n", options.size,
                          observe::counted(limited.processes, "process"),
                          limited.above.empty() ? "" : ": ", limited.above));
    }
    return 0;
}

} // namespace emm::tool

#include "commands.h"
#include "observe/text.h"
#include "print.h"
#include "problem.h"
#include "top/inquiry.h"
#include "usage.h"

#include <fmt/format.h>
#include <nlohmann/json.hpp>

namespace emm::tool {
namespace {

Failure failure(int64_t pid, const std::string &message) {
    return Failure({.stage = "set", .message = fmt::format("set: process {}: {}", pid, message)});
}

} // namespace

int run_set(const SetOptions &options) {
    const std::string &setting = options.words.back();
    if (options.words.size() == 2 && options.words.front().find('=') != std::string::npos) {
        throw usage(fmt::format("set: expected one option at a time, found '{}' and '{}'",
                                options.words.front(), setting));
    }
    const std::string pool = options.words.size() == 2 ? options.words.front() : "";
    const size_t equals = setting.find('=');
    if (equals == std::string::npos || equals == 0) {
        throw usage(fmt::format("set: expected an option as KEY=VALUE, found '{}'", setting));
    }
    const std::string rest = setting + std::string(1, '\0') + pool;
    if (rest.size() > monitor::longest_rest) {
        throw usage(fmt::format("set: expected at most {} bytes, found {}", monitor::longest_rest,
                                rest.size()));
    }
    const top::Process process =
        top::Inquiry().ask(options.pid, monitor::RequestKind::set, "set", rest);
    if (!process.set_problem) {
        throw failure(options.pid,
                      process.problem.empty() ? "its answer is not emm's" : process.problem);
    }
    if (!process.set_problem->empty()) {
        const std::string before =
            process.set_pools == 0
                ? ""
                : fmt::format(" (of its pools {} changed before)", process.set_pools);
        throw failure(options.pid, *process.set_problem + before);
    }
    const std::string &above = process.set_above;
    const std::string key = setting.substr(0, equals), value = setting.substr(equals + 1);
    if (options.json) {
        print_json(Json{{"pools", process.set_pools},
                        {"option", key},
                        {"value", value},
                        {"above", above.empty() ? Json() : Json(above)}});
    } else {
        print(fmt::format("{} is {} in {}{}{}\n", key, value.empty() ? "its default" : value,
                          observe::counted(process.set_pools, "pool"), above.empty() ? "" : ": ",
                          above));
    }
    return 0;
}

} // namespace emm::tool

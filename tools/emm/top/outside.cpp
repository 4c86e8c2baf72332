// emm pause and emm resume.
#include "commands.h"
#include "observe/text.h"
#include "print.h"
#include "problem.h"
#include "table.h"
#include "top/inquiry.h"
#include "top/view.h"
#include "usage.h"

#include <fmt/format.h>
#include <nlohmann/json.hpp>

namespace emm::tool {
namespace {

top::Process ask(int64_t pid, bool is_pause, const std::string &rest) {
    const char *const name = is_pause ? "pause" : "resume";
    if (rest.size() > monitor::longest_rest) {
        throw usage(fmt::format("{}: no pool has such a long name ({} bytes)", name, rest.size()));
    }
    const auto kind = is_pause ? monitor::RequestKind::pause : monitor::RequestKind::resume;
    top::Process process = top::Inquiry().ask(pid, kind, name, rest);
    const std::string problem = process.pause_problem     ? *process.pause_problem
                                : process.problem.empty() ? "its answer is not emm's"
                                                          : process.problem;
    if (!problem.empty()) {
        throw Failure(
            {.stage = name, .message = fmt::format("{}: process {}: {}", name, pid, problem)});
    }
    return process;
}

Json pools_json(const std::vector<top::PausedPool> &pools) {
    Json list = Json::array();
    for (const top::PausedPool &pool : pools) {
        list.push_back({{"device", pool.device},
                        {"context", pool.context},
                        {"pool", pool.pool.empty() ? Json() : Json(pool.pool)},
                        {"bytes", pool.bytes},
                        {"stays", pool.stays.empty() ? Json() : Json(pool.stays)}});
    }
    return list;
}

std::string line_of(const top::PausedPool &pool) {
    return fmt::format("  device {}{}{}: {}{}{}\n", pool.device,
                       pool.context == 0 ? "" : fmt::format(", context {}", pool.context),
                       pool.pool.empty() ? "" : ", " + pool.pool, in_bytes(pool.bytes),
                       pool.stays.empty() ? "" : "; ", pool.stays);
}

void show(const top::Process &process, bool is_pause, bool json) {
    std::string lines;
    for (const top::PausedPool &pool : process.pause_pools) {
        lines += line_of(pool);
    }
    if (process.pause_pools_left_out != 0) {
        lines +=
            fmt::format("  and {}\n", observe::counted(process.pause_pools_left_out, "more pool"));
    }
    const double seconds = double(process.pause_nanoseconds) / 1e9;
    if (json) {
        print_json(Json{{"bytes", process.pause_bytes},
                        {"seconds", seconds},
                        {"pools", pools_json(process.pause_pools)},
                        {"pools_left_out", process.pause_pools_left_out}});
    } else {
        print(fmt::format("{} {} in {:.3f} s\n{}", in_bytes(process.pause_bytes),
                          is_pause ? "went back to the driver" : "came back", seconds, lines));
    }
}

} // namespace

int run_pause(const PauseOptions &options) {
    const std::string rest =
        fmt::format("{} {:.0f}", options.discard ? "discard" : "keep", options.limit * 1e3) +
        std::string(1, '\0') + options.pool;
    show(ask(options.pid, true, rest), true, options.json);
    return 0;
}

int run_resume(const PauseOptions &options) {
    const std::string rest =
        (options.keep_copy ? "keep" : "") + std::string(1, '\0') + options.pool;
    show(ask(options.pid, false, rest), false, options.json);
    return 0;
}

} // namespace emm::tool

#include "commands.h"

#include "driver/limit.h"
#include "driver/shared_group.h"
#include "observe/callers/track_options.h"
#include "observe/text.h"
#include "print.h"
#include "problem.h"
#include "run/environment.h"
#include "run/preload.h"
#include "run/program.h"
#include "usage.h"

#include <emm/emm.h>

#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fmt/format.h>
#include <unistd.h>

extern char **environ;

namespace emm::tool {
namespace {

constexpr int run_usage = 2; // the exit status

Environment own_environment() {
    Environment all;
    for (char **entry = environ; *entry; ++entry) {
        const std::string text = *entry;
        const size_t end = text.find('=');
        if (end != std::string::npos) {
            all.emplace(text.substr(0, end), text.substr(end + 1));
        }
    }
    return all;
}

void apply(const Changes &changes) {
    for (const auto &[name, value] : changes) {
        value ? setenv(name.c_str(), value->c_str(), 1) : unsetenv(name.c_str());
    }
}

void check_usage(const RunOptions &options) {
    if (options.program.empty() && !options.print_env) {
        throw Refusal(run_usage,
                      "name a program after '--', as in emm run --plugin pool -- python train.py");
    }
    if (options.plugin && options.plugin->empty()) {
        throw Refusal(run_usage, "--plugin: expected a SPEC such as pool:max=8GiB, found ''");
    }
    if (options.release && !are_caches(*options.release)) {
        throw Refusal(run_usage,
                      "--release: " + none_of({"torch", "cupy", "torch,cupy"}, *options.release));
    }
}

void check_track(const std::string &spec) {
    observe::TrackOptions parsed;
    if (spec.empty() || !observe::parse_track_options(spec, parsed)) {
        throw Refusal(run_usage,
                      fmt::format("--track: expected {}, found '{}'",
                                  observe::track_options_expected, observe::one_line(spec)));
    }
}

// Checks the text alone: the devices are those that the program sees.
void check_limit(const std::string &text) {
    std::vector<driver::Limit> limits;
    const std::string problem = driver::parse_limits(text, limits);
    if (!problem.empty()) {
        throw Refusal(run_usage, "--limit: " + problem);
    }
}

void check_shared(const RunOptions &options) {
    const std::string problem = driver::group_name_problem(*options.shared);
    if (!problem.empty()) {
        throw Refusal(run_usage, "--shared: " + problem);
    }
    const char *const limit = std::getenv("EMM_LIMIT");
    if (!options.limit && !(limit && *limit)) {
        throw Refusal(run_usage, "--shared needs --limit SIZE");
    }
}

// Absolute, because the program may go to another folder.
std::string absolute_record(const std::string &file) {
    if (file.empty()) {
        throw Refusal(run_usage, "--record: expected the path of a file, found ''");
    }
    const std::filesystem::path path = std::filesystem::absolute(file).lexically_normal();
    std::error_code error;
    if (!std::filesystem::is_directory(path.parent_path(), error)) {
        throw Refusal(run_usage, fmt::format("--record {}: the folder {} does not exist", file,
                                             path.parent_path().string()));
    }
    if (std::filesystem::exists(path, error) && !std::filesystem::is_regular_file(path, error)) {
        throw Refusal(
            run_usage,
            fmt::format("--record {}: it is a folder or a device, not a regular file", file));
    }
    return path.string();
}

// Its path.
std::string found_program(const std::string &name) {
    const FoundProgram found = find_program(name, std::getenv("PATH"));
    if (found.error == ENOENT) {
        const bool is_path = name.find('/') != std::string::npos;
        throw Refusal(program_missing, fmt::format("cannot find the program '{}'{}", name,
                                                   is_path ? "" : " in the folders of PATH"));
    }
    if (found.error != 0) {
        throw Refusal(program_unusable,
                      fmt::format("cannot run {}: {}", found.path, std::strerror(found.error)));
    }
    check_program(found.path);
    return found.path;
}

// By libemm in this process, from the same variables.
void check_plugin() {
    auto info = sized<emm_plugin_info>();
    const char *const log = std::getenv("EMM_LOG");
    const std::string wanted = log ? log : "";
    if (log) {
        setenv("EMM_LOG", log_of_check(wanted).c_str(), 1);
    }
    require(emm_get_plugin(&info), "resolve");
    if (log) {
        setenv("EMM_LOG", wanted.c_str(), 1);
    }
}

[[noreturn]] void become(const std::string &path, std::vector<std::string> words) {
    std::vector<char *> arguments;
    for (std::string &word : words) {
        arguments.push_back(word.data());
    }
    arguments.push_back(nullptr);
    execvp(path.c_str(), arguments.data()); // a script without a first line runs in a shell
    throw Refusal(errno == ENOENT ? program_missing : program_unusable,
                  fmt::format("cannot run {}: {}", path, std::strerror(errno)));
}

int run_checked(RunOptions options, WriteSignalsIgnored &signals) {
    check_usage(options);
    if (options.track) {
        check_track(*options.track);
    }
    if (options.limit) {
        check_limit(*options.limit);
    }
    if (options.shared) {
        check_shared(options);
    }
    if (options.record) {
        options.record = absolute_record(*options.record);
    }
    const std::string path = options.program.empty() ? "" : found_program(options.program.front());
    const Environment before = own_environment();
    const Changes changes = run_environment(before, options, find_run_folder());
    apply(changes);
    check_plugin();
    if (options.print_env) {
        print_as_is(shell_lines(before, changes));
        return 0;
    }
    signals.restore();
    become(path, options.program);
}

} // namespace

int run_program(const RunOptions &options, WriteSignalsIgnored &signals) {
    try {
        return run_checked(options, signals);
    } catch (const Refusal &refusal) {
        print_error(fmt::format("emm run: {}\n", refusal.what()));
        return refusal.status();
    }
}

} // namespace emm::tool

#include "child.h"

#include "clock.h"
#include "observe/read_write.h"
#include "observe/text.h"
#include "problem.h"

#include <cerrno>
#include <csignal>
#include <cstdlib>
#include <cstring>
#include <fcntl.h>
#include <fmt/format.h>
#include <nlohmann/json.hpp>
#include <poll.h>
#include <spawn.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

extern char **environ;

namespace emm::tool {
namespace {

Failure failure(std::string message, std::string hint = {}) {
    return Failure({.code = EMM_E_PLUGIN_FAILED,
                    .stage = process_stage,
                    .message = std::move(message),
                    .hint = std::move(hint)});
}

std::vector<std::string> changed_environment(const Changes &changes) {
    std::vector<std::string> all;
    for (char **entry = environ; *entry; entry++) {
        const std::string text = *entry;
        const std::string name = text.substr(0, text.find('='));
        bool kept = true;
        for (const auto &[changed, value] : changes) {
            kept = kept && changed != name;
        }
        if (kept) {
            all.push_back(text);
        }
    }
    for (const auto &[name, value] : changes) {
        if (value) {
            all.push_back(name + "=" + *value);
        }
    }
    return all;
}

// `job` and `subject` are for ps and emm top alone.
pid_t spawn_self(int in, int out, int errors, const Changes &changes, std::string job,
                 std::string subject) {
    std::vector<std::string> variables = changed_environment(changes);
    std::vector<char *> pointers;
    for (std::string &variable : variables) {
        pointers.push_back(variable.data());
    }
    pointers.push_back(nullptr);
    posix_spawn_file_actions_t actions;
    posix_spawn_file_actions_init(&actions);
    posix_spawn_file_actions_adddup2(&actions, in, STDIN_FILENO);
    posix_spawn_file_actions_adddup2(&actions, out, STDOUT_FILENO);
    posix_spawn_file_actions_adddup2(&actions, errors, STDERR_FILENO);
    std::string name = "emm", argument = child_argument;
    char *arguments[] = {name.data(), argument.data(), job.data(), subject.data(), nullptr};
    pid_t process = -1;
    const int error =
        posix_spawn(&process, "/proc/self/exe", &actions, nullptr, arguments, pointers.data());
    posix_spawn_file_actions_destroy(&actions);
    if (error != 0) {
        throw failure(std::string("cannot start a process: ") + std::strerror(error));
    }
    return process;
}

} // namespace

void add_settings(std::string &text, const std::string &settings) {
    for (const std::string &setting : observe::split(settings, ',')) {
        const std::string key = setting.substr(0, setting.find('=') + 1);
        if (("," + text).find("," + key) == std::string::npos) {
            text += (text.empty() ? "" : ",") + setting;
        }
    }
}

std::string simulator_settings(const std::vector<std::string> &settings) {
    const char *given = std::getenv("EMM_SIM");
    std::string text = given ? given : "";
    for (const std::string &setting : settings) {
        add_settings(text, setting);
    }
    return text;
}

Child::Child(std::string plugin, const Json &job, const Changes &changes,
             const ChildSettings &settings)
    : plugin_(std::move(plugin)), time_limit_(settings.time_limit) {
    int down[2], up[2];
    if (pipe2(down, O_CLOEXEC) != 0 || pipe2(up, O_CLOEXEC) != 0) {
        throw failure(std::string("cannot make a pipe: ") + std::strerror(errno));
    }
    channel_ = std::make_unique<Channel>(up[0], down[1]);
    const Channel far_ends(down[0], up[1]);
    process_ = spawn_self(down[0], up[1], settings.errors, changes,
                          job.at("job").get<std::string>(), plugin_);
    channel_->send(job);
}

Child::~Child() {
    if (process_ > 0) {
        finish();
    }
}

std::string Child::finish() {
    channel_->close_out();
    Channel::End end = Channel::End::none;
    while (const std::optional<Json> message = channel_->receive(time_limit_, end)) {
        inside_ = message->value("inside", inside_);
    }
    if (end == Channel::End::timeout) {
        kill(process_, SIGKILL);
        how_it_ended();
        return "did not come to its end";
    }
    return how_it_ended();
}

// "": with status 0.
std::string Child::how_it_ended() {
    int status = 0;
    while (waitpid(process_, &status, 0) < 0 && errno == EINTR) {
    }
    process_ = -1;
    if (WIFSIGNALED(status)) {
        const int number = WTERMSIG(status);
        return "was ended by signal " + std::to_string(number) + " (" + strsignal(number) + ")" +
               (inside_.empty() ? "" : " inside " + inside_);
    }
    const int code = WEXITSTATUS(status);
    return code == 0 ? "" : "ended with status " + std::to_string(code);
}

Json Child::receive(const Report &report) {
    while (process_ > 0) {
        Channel::End end = Channel::End::none;
        const std::optional<Json> message = channel_->receive(time_limit_, end);
        if (message && message->contains("progress")) {
            if (report) {
                report(message->at("progress").get<double>());
            }
        } else if (message && message->contains("inside")) {
            inside_ = message->at("inside").get<std::string>();
        } else if (message && message->contains("error")) {
            throw Failure(problem_from_json(*message));
        } else if (message) {
            return *message;
        } else if (end == Channel::End::timeout) {
            kill(process_, SIGKILL);
            how_it_ended();
            throw failure(
                fmt::format("{}: silent for {} s; its process was stopped", plugin_, time_limit_));
        } else {
            const std::string end_of_it = how_it_ended();
            throw failure(plugin_ + ": its process " + (end_of_it.empty() ? "ended" : end_of_it) +
                          (inside_.empty() ? " without an answer" : ""));
        }
    }
    throw failure(plugin_ + ": its process has ended before");
}

Parent::Parent() {
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    const int out = fcntl(STDOUT_FILENO, F_DUPFD_CLOEXEC, 3);
    dup2(STDERR_FILENO, STDOUT_FILENO);
    channel_ = std::make_unique<Channel>(STDIN_FILENO, out);
}

Json Parent::receive() {
    Channel::End end = Channel::End::none;
    constexpr double for_ever = 1e6;
    return channel_->receive(for_ever, end).value_or(Json{{"end", true}});
}

void Parent::send(const Json &message) {
    const std::lock_guard lock(mutex_);
    channel_->send(message);
}

void Parent::progress(double share) {
    send({{"progress", share}});
}

Channel::~Channel() {
    close(in_);
    close_out();
}

void Channel::close_out() {
    if (out_ >= 0) {
        close(out_);
    }
    out_ = -1;
}

// Its length, then MessagePack, which carries names of files that are no UTF-8.
bool Channel::send(const Json &message) {
    std::string text(sizeof(uint64_t), '\0');
    Json::to_msgpack(message, text);
    const uint64_t length = text.size() - sizeof length;
    std::memcpy(text.data(), &length, sizeof length);
    return observe::write_all(out_, text);
}

// No allocation, and one write.
void Channel::send_inside(int out, const char *what) noexcept {
    char text[96] = "\0\0\0\0\0\0\0\0\x81\xa6inside\xd9"; // a map of one text to another
    const size_t begin = 17;
    const size_t length = strnlen(what, sizeof text - begin - 1);
    text[begin] = char(length);
    std::memcpy(text + begin + 1, what, length);
    const uint64_t all = begin + 1 + length - sizeof all;
    std::memcpy(text, &all, sizeof all);
    static_cast<void>(!write(out, text, sizeof all + all));
}

std::optional<Json> Channel::take_message() {
    uint64_t length = 0;
    if (buffer_.size() < sizeof length) {
        return std::nullopt;
    }
    std::memcpy(&length, buffer_.data(), sizeof length);
    if (buffer_.size() - sizeof length < length) {
        return std::nullopt;
    }
    const auto begin = buffer_.cbegin() + sizeof length, end = begin + ptrdiff_t(length);
    Json message = Json::from_msgpack(begin, end);
    buffer_.erase(buffer_.cbegin(), end);
    return message;
}

std::optional<Json> Channel::receive(double timeout, End &ret_end) {
    const double until = seconds_now() + timeout;
    for (;;) {
        if (std::optional<Json> message = take_message()) {
            ret_end = End::none;
            return message;
        }
        pollfd waiting = {in_, POLLIN, 0};
        const double left = until - seconds_now();
        const int ready = poll(&waiting, 1, left > 0 ? static_cast<int>(left * 1000) + 1 : 0);
        if (ready == 0) {
            ret_end = End::timeout;
            return std::nullopt;
        }
        char part[4096];
        const ssize_t got = ready > 0 ? read(in_, part, sizeof part) : -1;
        if (got == 0 || (got < 0 && errno != EINTR)) {
            ret_end = End::closed;
            return std::nullopt;
        }
        buffer_.append(part, got > 0 ? static_cast<size_t>(got) : 0);
    }
}

} // namespace emm::tool

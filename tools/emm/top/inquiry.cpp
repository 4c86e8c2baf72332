#include "top/inquiry.h"

#include "observe/read_write.h"
#include "problem.h"
#include "sockets/address.h"
#include "sockets/user.h"
#include "top/process.h"

#include <algorithm>
#include <cerrno>
#include <csignal>
#include <cstring>
#include <fmt/format.h>
#include <poll.h>
#include <sys/resource.h>
#include <unistd.h>

namespace emm::tool::top {
namespace {

using monitor::RequestKind, sockets::now;

// The longest waits in nanoseconds, beyond the time that a process gives its plugin: for all
// processes, and for a single one.
constexpr int64_t brief = 700'000'000, patient = 2'000'000'000;
constexpr size_t most_at_once = 512;

const char *const hung_up = "it hung up";

double seconds(int64_t nanoseconds) {
    return static_cast<double>(nanoseconds) / 1e9;
}

// -1 with errno. Nothing here waits.
int connect_socket(const std::string &name) {
    const sockets::Address address = sockets::address_of(name);
    const int made = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    if (made >= 0 && connect(made, address.get(), address.length) != 0) {
        const int error = errno;
        ::close(made);
        errno = error;
        return -1;
    }
    return made;
}

// 0: the process is of a namespace that this process does not see.
int64_t peer_of(int socket) {
    ucred peer = {};
    socklen_t length = sizeof peer;
    return getsockopt(socket, SOL_SOCKET, SO_PEERCRED, &peer, &length) == 0 ? peer.pid : 0;
}

std::string silence(int64_t pid, int64_t since) {
    return fmt::format("no answer for {:.1f} s{}", seconds(now() - since),
                       is_stopped(pid) ? ": the process is stopped" : "");
}

// "export" of "export: --pid"
std::string command_of(const std::string &subject) {
    return subject.substr(0, subject.find(':'));
}

std::vector<Name> present_names(const std::string &command) {
    const std::string table = observe::text_of_file("/proc/net/unix");
    if (table.empty()) {
        throw Failure({.stage = command,
                       .message = "cannot read /proc/net/unix, the table of sockets that lists the "
                                  "processes that use emm",
                       .path = "/proc/net/unix"});
    }
    return names_in(table);
}

// A process hangs up when it ends, and when it does not take the request.
Problem no_answer(const std::string &subject, int64_t pid, size_t rest) {
    constexpr size_t longest_once = 200;
    return {.stage = command_of(subject),
            .message = fmt::format("{}: process {} hung up without an answer: it may be ending{}",
                                   subject, pid,
                                   rest <= longest_once ? ""
                                                        : ", or its emm is older and takes at most "
                                                          "200 bytes")};
}

Problem no_process(const std::string &subject, int64_t pid) {
    if (kill(static_cast<pid_t>(pid), 0) != 0 && errno == ESRCH) {
        return {.stage = command_of(subject),
                .message = fmt::format("{}: there is no process {}", subject, pid)};
    }
    return {.stage = command_of(subject),
            .message = fmt::format(
                "{}: {} is not a process of this user that uses emm, or cannot be asked from here",
                subject, pid),
            .hint = "emm top lists the processes that can be asked; it cannot see a process in "
                    "another network namespace, with EMM_TOP=off, or without a context so far"};
}

} // namespace

Inquiry::Inquiry() : room_(monitor::longest_answer + 1, '\0') {
    rlimit limit;
    if (getrlimit(RLIMIT_NOFILE, &limit) == 0) {
        limit.rlim_cur = limit.rlim_max;
        setrlimit(RLIMIT_NOFILE, &limit);
    }
}

Inquiry::~Inquiry() {
    for (auto &[name, asked] : asked_) {
        close(asked);
    }
}

void Inquiry::close(Asked &asked) {
    if (asked.socket >= 0) {
        ::close(asked.socket);
        asked.socket = -1;
    }
}

// False: no such process, or another user's.
bool Inquiry::connect_to(const Name &name, Asked &asked) {
    asked.since = now();
    asked.process.name = name.text;
    asked.socket = connect_socket(name.text);
    if (asked.socket >= 0) {
        uint32_t user = 0;
        asked.process.pid = peer_of(asked.socket);
        return sockets::is_own_user(asked.socket, &user);
    }
    const int error = errno;
    asked.process.pid = name.claimed_pid;
    asked.is_settled = true;
    asked.process.problem =
        error == EAGAIN ? "it accepts no connection, because earlier ones still wait for an answer"
                        : std::string("it cannot be asked: ") + std::strerror(error);
    return error != ECONNREFUSED && is_of_this_user(name.claimed_pid);
}

void Inquiry::begin(const Name &name, RequestKind kind, const std::string &rest) {
    Asked asked;
    if (!connect_to(name, asked)) {
        close(asked);
        return;
    }
    asked.process.program = program_of(asked.process.pid);
    const monitor::Request request = {monitor::protocol_magic, monitor::protocol_version,
                                      static_cast<uint32_t>(kind), 0};
    const std::string message =
        std::string(reinterpret_cast<const char *>(&request), sizeof request) + rest;
    if (asked.socket >= 0 &&
        send(asked.socket, message.data(), message.size(), MSG_NOSIGNAL | MSG_DONTWAIT) < 0) {
        close(asked); // the process is ending
        return;
    }
    asked_[name.text] = std::move(asked);
}

// A process that ends, or hangs up, does not use emm.
void Inquiry::receive(Asked &asked) {
    const ssize_t got = recv(asked.socket, room_.data(), room_.size(), MSG_DONTWAIT);
    if (got < 0 && (errno == EAGAIN || errno == EINTR)) {
        return;
    }
    asked.is_settled = true;
    if (got > 0) {
        read_answer(std::string_view(room_).substr(0, static_cast<size_t>(got)), asked.process);
    } else {
        asked.process.problem = hung_up;
    }
    close(asked);
}

std::vector<Inquiry::Asked *> Inquiry::unsettled(const std::vector<Name> &names) {
    std::vector<Asked *> found;
    for (const Name &name : names) {
        const auto place = asked_.find(name.text);
        if (place != asked_.end() && !place->second.is_settled) {
            found.push_back(&place->second);
        }
    }
    return found;
}

void Inquiry::wait_for_all(const std::vector<Name> &names, int64_t timeout) {
    const int64_t until = now() + timeout;
    for (;;) {
        const std::vector<Asked *> left = unsettled(names);
        const int64_t rest = until - now();
        if (left.empty() || rest <= 0) {
            return;
        }
        std::vector<pollfd> waiting;
        for (const Asked *asked : left) {
            waiting.push_back({asked->socket, POLLIN, 0});
        }
        if (poll(waiting.data(), waiting.size(), static_cast<int>(rest / 1'000'000) + 1) < 0 &&
            errno != EINTR) {
            return;
        }
        for (size_t i = 0; i < waiting.size(); ++i) {
            if (waiting[i].revents != 0) {
                receive(*left[i]);
            }
        }
    }
}

// Stops waiting for processes that have ended.
void Inquiry::forget_all_but(const std::vector<Name> &names) {
    std::map<std::string, Asked> kept;
    for (const Name &name : names) {
        if (const auto found = asked_.find(name.text); found != asked_.end()) {
            kept.insert(asked_.extract(found));
        }
    }
    for (auto &[name, asked] : asked_) {
        close(asked);
    }
    asked_ = std::move(kept);
}

// A request without an answer stays for the next time.
void Inquiry::take(const Name &name, std::vector<Process> &ret_processes) {
    const auto found = asked_.find(name.text);
    if (found == asked_.end()) {
        return;
    }
    Asked &asked = found->second;
    if (!asked.is_settled) {
        ret_processes.push_back(asked.process);
        ret_processes.back().problem = silence(asked.process.pid, asked.since);
        return;
    }
    if (asked.process.problem != hung_up) {
        ret_processes.push_back(std::move(asked.process));
    }
    asked_.erase(found);
}

void Inquiry::ask_some(const std::vector<Name> &names, std::vector<Process> &ret_processes) {
    for (const Name &name : names) {
        if (asked_.count(name.text) == 0) {
            begin(name, RequestKind::figures);
        }
    }
    wait_for_all(names, monitor::plugin_timeout(RequestKind::figures) + brief);
    for (const Name &name : names) {
        take(name, ret_processes);
    }
}

std::vector<Process> Inquiry::ask_all() {
    const std::vector<Name> names = present_names("top");
    forget_all_but(names);
    std::vector<Process> processes;
    for (size_t first = 0; first < names.size(); first += most_at_once) {
        const auto from = names.begin() + static_cast<long>(first);
        const size_t count = std::min(most_at_once, names.size() - first);
        ask_some({from, from + static_cast<long>(count)}, processes);
    }
    return processes;
}

Process Inquiry::ask(int64_t pid, RequestKind kind, const std::string &subject,
                     const std::string &rest) {
    bool was_asked = false;
    for (const Name &name : present_names(command_of(subject))) {
        Asked probe;
        const bool is_own = connect_to(name, probe);
        const int64_t found = probe.process.pid != 0 ? probe.process.pid : name.claimed_pid;
        close(probe);
        if (!is_own || found != pid) {
            continue;
        }
        was_asked = true;
        begin(name, kind, rest);
        const int64_t until = now() + monitor::plugin_timeout(kind) + patient;
        do { // a pause may take long, but not while the process is stopped
            wait_for_all({name}, std::min(until - now(), patient));
        } while (!unsettled({name}).empty() && !is_stopped(pid) && now() < until);
        std::vector<Process> taken;
        take(name, taken);
        if (!taken.empty()) {
            return taken.front();
        }
    }
    throw Failure(was_asked && kill(static_cast<pid_t>(pid), 0) == 0
                      ? no_answer(subject, pid, rest.size())
                      : no_process(subject, pid));
}

void Inquiry::ask_to_trim(const std::vector<Name> &names) {
    for (const Name &name : names) {
        begin(name, RequestKind::trim);
    }
    wait_for_all(names, monitor::plugin_timeout(RequestKind::trim) + brief);
}

} // namespace emm::tool::top

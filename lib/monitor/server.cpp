// The thread that answers `emm top`.
//
// A process has one such thread, from its first served context on. It sleeps in poll until a tool
// connects (sockets/server.h), so it costs a stack of which few pages are touched. It blocks all
// signals, and no thread joins it. A forked child has neither the thread nor the socket.
//
// The thread calls no plugin itself (collector.h). An answer is one message, which the kernel takes
// whole or not at all.
//
// The thread ends when the program has closed its socket, or when the process may have no
// descriptors any more.
#include "monitor/server.h"

#include "driver/copies.h"
#include "driver/driver.h"
#include "monitor/answer.h"
#include "monitor/collector.h"
#include "monitor/outside.h"
#include "monitor/protocol.h"
#include "observe/environment.h"
#include "observe/error.h"
#include "observe/log.h"
#include "observe/process.h"
#include "sockets/message.h"
#include "sockets/server.h"
#include "sockets/socket.h"

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <sys/random.h>
#include <sys/socket.h>
#include <unistd.h>

namespace emm::monitor {
namespace {

constexpr int64_t silence = 2'000'000'000;      // nanoseconds
constexpr int64_t exit_timeout = 1'000'000'000; // at the end of the process
constexpr int64_t fit_interval = 250'000'000;   // while there is more than a limit allows
constexpr int backlog = 128;

static_assert(sizeof(Request) + longest_rest < sockets::Server::longest_request);

constexpr auto &collector = observe::immortal<Collector>;

constinit std::atomic<const loader::Plugin *> plugin_in_force{nullptr};

std::string figures(RequestKind kind) {
    Collected found = collector().collect(kind, plugin_timeout(kind));
    found.is_held = is_held();
    return answer(kind, this_program(), plugin_in_force.load(), found);
}

// Set when a limit may have become smaller. Until the process fits the limit, memory that its
// program frees goes back too, even if its plugin would keep it. Only the answering thread uses
// this.
bool may_be_above = false;

int64_t fit_limit() noexcept {
    try {
        may_be_above = may_be_above && !driver::above_limit_text().empty();
        if (may_be_above) {
            collector().collect(RequestKind::trim, plugin_timeout(RequestKind::trim));
        }
    } catch (const std::exception &error) {
        observe::log(EMM_LOG_DEBUG,
                     "freeing memory down to the limit failed and is tried again: {}",
                     error.what());
    }
    return may_be_above ? fit_interval : -1;
}

std::string limit_to(std::string_view text) {
    if (driver::change_limits(text) < EMM_OK) {
        return answer_to_limit(observe::last_error()->text, "");
    }
    may_be_above = true;
    fit_limit();
    return answer_to_limit("", driver::above_limit_text());
}

// `rest`: what follows the request.
std::string answer_to(RequestKind kind, std::string_view rest) {
    switch (kind) {
    case RequestKind::limit:
        return limit_to(rest);
    case RequestKind::set:
        return answer_to_set(collector().collect(kind, plugin_timeout(kind), rest));
    case RequestKind::profile:
        return answer_to_profile(collector().collect(kind, plugin_timeout(kind)));
    case RequestKind::trim:
        may_be_above = true;
        return figures(kind);
    case RequestKind::report:
        return figures(kind);
    default:
        return figures(RequestKind::figures);
    }
}

// If the process was stopped, senders of old requests may have hung up by now, and have reported a
// failure. A trim is carried out all the same: a group's bound may have changed meanwhile.
bool has_hung_up(int socket) noexcept {
    char byte = 0;
    return recv(socket, &byte, sizeof byte, MSG_PEEK | MSG_DONTWAIT) == 0;
}

// A tool of another version gets an answer of this version, which names the version.
void answer_request(int socket, const void *message, long size) noexcept {
    const Request &request = *static_cast<const Request *>(message);
    const auto bytes = static_cast<size_t>(std::max(size, 0L));
    if (bytes < sizeof request || request.magic != protocol_magic) {
        return;
    }
    const auto kind = static_cast<RequestKind>(request.kind);
    const std::string_view rest(static_cast<const char *>(message) + sizeof request,
                                bytes - sizeof request);
    const bool is_outside = kind == RequestKind::pause || kind == RequestKind::resume;
    const bool has_rest = kind == RequestKind::limit || kind == RequestKind::set || is_outside;
    if (rest.empty() == has_rest || rest.size() > longest_rest ||
        (has_rest && has_hung_up(socket))) {
        return;
    }
    try {
        if (is_outside) {
            answer_outside(socket, kind == RequestKind::pause, rest);
            return;
        }
        const std::string text = answer_to(kind, rest);
        const int room = 2 * longest_answer;
        setsockopt(socket, SOL_SOCKET, SO_SNDBUF, &room, sizeof room);
        sockets::send_message(socket, text.data(), text.size(), nullptr, 0);
    } catch (const std::exception &error) {
        observe::log(EMM_LOG_WARN, "emm top gets no answer: {}", error.what());
    }
}

constinit sockets::Listener listener;

// Whether the user wants the server, and the process has no more rights than the user.
bool is_wanted() noexcept {
    return observe::setting("EMM_TOP") != "off" && !observe::elevated();
}

// Registered after the plugin's own handlers, so it runs before them.
void end_with_process() {
    if (!observe::is_forked_child()) {
        collector().end(exit_timeout);
        end_outside(exit_timeout);
    }
}

// Opens the socket under a fresh name. False: that failed.
bool open_socket() noexcept {
    uint64_t random = 0;
    const int error =
        getrandom(&random, sizeof random, 0) == sizeof random
            ? listener.open(SocketName(static_cast<uint64_t>(getpid()), random), backlog)
            : errno;
    if (error != 0) {
        observe::log(EMM_LOG_DEBUG, "emm top cannot ask this process: socket: {}",
                     std::strerror(error));
    } else {
        driver::publish_socket(random);
    }
    return error == 0;
}

void start() noexcept {
    static constinit sockets::Server server(listener, silence, &answer_request, &fit_limit);
    if (is_wanted() && open_socket()) {
        find_library();
        std::atexit(&end_with_process);
        if (!sockets::start_thread("emm-top", [] {
                server.run();
                listener.close();
            })) {
            listener.close();
        }
    }
}

} // namespace

void announce(const loader::Plugin &plugin) noexcept {
    plugin_in_force.store(&plugin);
    static constinit std::atomic<bool> started{false};
    if (!started.exchange(true)) {
        start();
    }
}

} // namespace emm::monitor

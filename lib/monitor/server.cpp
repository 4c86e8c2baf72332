// The thread that answers `emm top`.
//
// There is one in a process, from the first context that is served on. It sleeps in poll until a
// tool connects (sockets/server.h), so that it costs a stack of which three pages are touched. It
// blocks all signals, and no thread joins it. A forked child has neither the thread nor the socket.
//
// It calls no plugin itself (collector.h). An answer is one message, which the kernel takes whole
// or not at all.
//
// Its end: it finds that the program has closed its socket, or may have no descriptors any more.
#include "monitor/server.h"

#include "monitor/answer.h"
#include "monitor/collector.h"
#include "monitor/protocol.h"
#include "observe/environment.h"
#include "observe/log.h"
#include "observe/process.h"
#include "sockets/message.h"
#include "sockets/server.h"
#include "sockets/socket.h"

#include <fmt/format.h>

#include <atomic>
#include <cstdlib>
#include <cstring>
#include <sys/random.h>
#include <sys/socket.h>
#include <unistd.h>

namespace emm::monitor {
namespace {

constexpr int64_t silence = 2'000'000'000;      // nanoseconds
constexpr int64_t plugin_timeout = 300'000'000; // for a plugin
constexpr int64_t exit_timeout = 1'000'000'000; // at the end of the process
constexpr int backlog = 128;

constexpr auto &collector = observe::immortal<Collector>;

constinit std::atomic<const loader::Plugin *> plugin_in_force{nullptr};

void send_answer(int socket, Wish wish) {
    const Collected collected = collector().collect(wish, plugin_timeout);
    const std::string text = answer(wish, this_program(), plugin_in_force.load(), collected);
    const int room = 2 * longest_answer;
    setsockopt(socket, SOL_SOCKET, SO_SNDBUF, &room, sizeof room);
    sockets::send_message(socket, text.data(), text.size(), nullptr, 0);
}

// A tool of another version gets the answer of this one, which tells its version.
void answer_request(int socket, const void *message, long size) noexcept {
    const Request &request = *static_cast<const Request *>(message);
    if (size != static_cast<long>(sizeof request) || request.magic != protocol_magic) {
        return;
    }
    const bool reports = request.wish == static_cast<uint32_t>(Wish::report);
    try {
        send_answer(socket, reports ? Wish::report : Wish::figures);
    } catch (const std::exception &error) {
        observe::log(EMM_LOG_WARN, "emm top is not answered: {}", error.what());
    }
}

constinit sockets::Listener listener;

// Whether the user wants it, and the process has no more rights than the user.
bool is_wanted() noexcept {
    return observe::setting("EMM_TOP") != "off" && !observe::elevated();
}

// Registered after the plugin's own handlers, it runs before them.
void end_with_process() {
    if (!observe::is_forked_child()) {
        collector().end(exit_timeout);
    }
}

// Under a fresh name. False: the socket cannot be had.
bool open_socket() noexcept {
    uint64_t random = 0;
    if (getrandom(&random, sizeof random, 0) != sizeof random) {
        return false;
    }
    char name[64];
    const auto end = fmt::format_to_n(name, sizeof name, "{}{}-{:0{}x}", name_prefix, getpid(),
                                      random, random_digits);
    const int error = listener.open({name, end.size}, backlog);
    if (error != 0) {
        observe::log(EMM_LOG_DEBUG, "emm top cannot ask this process: socket: {}",
                     std::strerror(error));
    }
    return error == 0;
}

void start() noexcept {
    static constinit sockets::Server server(listener, silence, &answer_request);
    if (is_wanted() && open_socket()) {
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

// The thread that answers `emm top`.
//
// There is one in a process, from the first context that is served on. It sleeps in poll until a
// tool connects, so that it costs a stack of which three pages are touched. It blocks all
// signals, and no thread joins it. A forked child has neither the thread nor the socket.
//
// It never waits for a peer, and calls no plugin itself (collector.h). What a peer sends is looked
// at when it is there; a silent one keeps its place for `silence`, or until a newer one needs it.
// An answer is one message, which the kernel takes whole or not at all.
//
// Its end: it finds that the program has closed its socket, or may have no descriptors any more.
#include "monitor/server.h"

#include "monitor/answer.h"
#include "monitor/collector.h"
#include "monitor/protocol.h"
#include "monitor/socket.h"
#include "observe/descriptors.h"
#include "observe/log.h"
#include "observe/process.h"
#include "sharing/wire.h"
#include "sockets/thread.h"
#include "sockets/user.h"

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <cstdlib>
#include <iterator>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

namespace emm::monitor {
namespace {

constexpr int64_t silence = 2'000'000'000;      // nanoseconds
constexpr int64_t plugin_timeout = 300'000'000; // for a plugin
constexpr int64_t exit_timeout = 1'000'000'000; // at the end of the process
constexpr size_t most_silent = 16;

struct Silent {
    int socket;
    int64_t since;
};

Collector &collector() {
    static observe::Immortal<Collector> the_collector;
    return the_collector.value;
}

constinit std::atomic<const loader::Plugin *> plugin_in_force{nullptr};

void send_answer(int socket, Wish wish) {
    const Collected collected = collector().collect(wish, plugin_timeout);
    const std::string text = answer(wish, this_program(), plugin_in_force.load(), collected);
    const int room = 2 * longest_answer;
    setsockopt(socket, SOL_SOCKET, SO_SNDBUF, &room, sizeof room);
    sharing::send_message(socket, text.data(), text.size(), nullptr, 0);
}

bool is_request(const Request &request, long size) noexcept {
    return size == static_cast<long>(sizeof request) && request.magic == protocol_magic;
}

// False: the peer has said nothing yet. A tool of another version gets the answer of this one,
// which tells its version.
bool hear(int socket) noexcept {
    Request request = {};
    sharing::Descriptors unwanted;
    const long got = sharing::receive_message(socket, &request, sizeof request, unwanted);
    if (got < 0 && (errno == EAGAIN || errno == EINTR)) {
        return false;
    }
    if (is_request(request, got)) {
        const bool reports = request.wish == static_cast<uint32_t>(Wish::report);
        try {
            send_answer(socket, reports ? Wish::report : Wish::figures);
        } catch (const std::exception &error) {
            observe::log(EMM_LOG_WARN, "emm top is not answered: {}", error.what());
        }
    }
    return true;
}

class Server {
public:
    void run() noexcept {
        while (step()) {
        }
        close_socket();
    }

private:
    bool step() noexcept;
    int timeout() const noexcept;
    void welcome(int listening) noexcept;
    void keep(int socket) noexcept;
    void hang_up(size_t index) noexcept;

    size_t count_ = 0;
    Silent silent_[most_silent]; // the oldest first
};

// False: the process cannot be asked any more.
bool Server::step() noexcept {
    pollfd waiting[1 + most_silent];
    waiting[0] = {own_socket(), POLLIN, 0};
    for (size_t i = 0; i < count_; ++i) {
        waiting[1 + i] = {silent_[i].socket, POLLIN, 0};
    }
    if (waiting[0].fd < 0) {
        return false;
    }
    if (poll(waiting, 1 + count_, timeout()) < 0) {
        return errno == EINTR || errno == EAGAIN || errno == ENOMEM;
    }
    for (size_t i = count_; i-- > 0;) {
        if (waiting[1 + i].revents != 0 && hear(silent_[i].socket)) {
            hang_up(i);
        }
    }
    while (count_ > 0 && sharing::now() - silent_[0].since > silence) {
        hang_up(0);
    }
    if (waiting[0].revents != 0) {
        const int listening = own_socket();
        welcome(listening);
        return listening >= 0;
    }
    return true;
}

// Milliseconds to when the oldest will have been silent for too long.
int Server::timeout() const noexcept {
    if (count_ == 0) {
        return -1;
    }
    const int64_t left = silence - (sharing::now() - silent_[0].since);
    return static_cast<int>(std::max<int64_t>(left, 0) / 1'000'000) + 1;
}

void Server::welcome(int listening) noexcept {
    const int made = observe::make_own(
        [listening] { return accept4(listening, nullptr, nullptr, SOCK_CLOEXEC | SOCK_NONBLOCK); });
    uint32_t user = 0;
    if (made < 0) {
        if (errno != EAGAIN && errno != EINTR && errno != ECONNABORTED) {
            usleep(100'000); // descriptors or memory are short, and the tool waits for longer
        }
    } else if (!sockets::is_own_user(made, &user) || hear(made)) {
        observe::forget_and_close(made);
    } else {
        keep(made);
    }
}

void Server::keep(int socket) noexcept {
    if (count_ == most_silent) {
        hang_up(0);
    }
    silent_[count_++] = {socket, sharing::now()};
}

void Server::hang_up(size_t index) noexcept {
    observe::forget_and_close(silent_[index].socket);
    std::copy(silent_ + index + 1, silent_ + count_, silent_ + index);
    --count_;
}

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

void start() noexcept {
    static Server server;
    if (is_wanted() && open_socket()) {
        std::atexit(&end_with_process);
        if (!sockets::start_thread("emm-top", [] { server.run(); })) {
            close_socket();
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

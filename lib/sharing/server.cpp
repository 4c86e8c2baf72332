// The thread that hands out descriptors, and handles to importers that know their names.
//
// There is one in a process, from its first export on, and one listening socket. Both stay until
// the process ends: another export may come at any time, and a thread that waits costs nothing. No
// thread joins it, and no exit handler stops it. It blocks all signals. A forked child
// has neither the thread nor, once the fork handler has run, the socket.
//
// It never waits for a peer. A connection is good for one request, which an importer sends as soon
// as it has connected: so most are answered and closed when they are accepted, and none has a place
// that another could take from it between two requests. Only a silent peer keeps a place, for
// `answer_timeout` at most, or until a newer silent one needs it; another user's is closed at once.
// An importer whose connection closes unanswered tries again.
//
// epoll and not poll: poll refuses more sockets than RLIMIT_NOFILE, which may fall at any time.
#include "sharing/server.h"

#include "observe/descriptors.h"
#include "observe/error.h"
#include "observe/process.h"
#include "sharing/exports.h"
#include "sharing/served_exports.h"
#include "sharing/socket.h"
#include "sharing/wire.h"
#include "sockets/user.h"

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <iterator>
#include <mutex>
#include <new>
#include <pthread.h>
#include <signal.h>
#include <string>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <thread>
#include <unistd.h>

namespace emm::sharing {
namespace {

constexpr size_t most_silent = 32;
constexpr int backlog = 64;

struct Silent {
    int socket;
    int64_t since; // when it was accepted
};

// The other process may have a copy of a socket that is closed here, and epoll would go on with it.
void leave(int epoll, int socket) noexcept {
    epoll_ctl(epoll, EPOLL_CTL_DEL, socket, nullptr);
    observe::forget_and_close(socket);
}

bool watch(int epoll, int socket) noexcept {
    epoll_event wanted = {};
    wanted.events = EPOLLIN;
    wanted.data.fd = socket;
    return epoll_ctl(epoll, EPOLL_CTL_ADD, socket, &wanted) == 0;
}

// What is short may be had again in a moment, and what waits does not go away meanwhile.
void rest() noexcept {
    usleep(10'000);
}

void answer_with_parts(int socket, const Request &request) noexcept {
    const ServedReply batch(request);
    const Reply &reply = batch.reply();
    send_message(socket, &reply, sizeof reply, batch.descriptors(), reply.count);
}

void answer_with_handle(int socket, const HandleRequest &request) noexcept {
    HandleReply reply = {};
    reply.magic = handle_magic;
    reply.status = find_export(request.name, &reply.handle) ? EMM_OK : EMM_E_NOT_OWNED;
    send_message(socket, &reply, sizeof reply, nullptr, 0);
}

// False: the peer has said nothing yet.
bool answer(int socket) noexcept {
    union {
        Request parts;
        HandleRequest handle;
    } request;
    Descriptors unwanted;
    const long got = receive_message(socket, &request, sizeof request, unwanted);
    if (got < 0 && (errno == EAGAIN || errno == EINTR)) {
        return false;
    }
    switch (what_is_asked(&request, got)) {
    case Asked::parts:
        answer_with_parts(socket, request.parts);
        break;
    case Asked::handle:
        answer_with_handle(socket, request.handle);
        break;
    case Asked::nothing:
        break;
    }
    return true;
}

class Server {
public:
    emm_status open();
    [[noreturn]] void run() noexcept {
        for (;;) {
            step();
        }
    }

private:
    void step() noexcept;
    int timeout() const noexcept;
    void welcome() noexcept;
    void keep(int socket) noexcept;
    void hear(int socket) noexcept;
    void hang_up(size_t index) noexcept;

    int epoll_ = -1, listening_ = -1;
    size_t count_ = 0;
    Silent silent_[most_silent]; // the oldest first
};

emm_status fail_serving(const char *what, const char *why) noexcept {
    return observe::fail(EMM_E_OUT_OF_HOST_MEMORY, 0, "no {} to serve exports with: {}", what, why);
}

// Can be called again after a failure: a step that succeeded then is not repeated.
emm_status Server::open() {
    if (epoll_ < 0) {
        epoll_ = observe::make_own([] { return epoll_create1(EPOLL_CLOEXEC); });
    }
    if (epoll_ < 0) {
        return fail_serving("epoll", std::strerror(errno));
    }
    int made = listening_;
    emm_status status = made < 0 ? listen_for_importers(backlog, &made) : EMM_OK;
    if (status == EMM_OK && listening_ < 0 && !watch(epoll_, made)) {
        status = fail_serving("place in epoll", std::strerror(errno));
        observe::forget_and_close(made);
    }
    listening_ = status == EMM_OK ? made : -1;
    return status;
}

void Server::step() noexcept {
    epoll_event events[64];
    const int ready = epoll_wait(epoll_, events, std::size(events), timeout());
    if (ready < 0 && errno != EINTR) {
        rest();
    }
    for (int i = 0; i < ready; ++i) {
        events[i].data.fd == listening_ ? welcome() : hear(events[i].data.fd);
    }
    while (count_ > 0 && now() - silent_[0].since > answer_timeout) {
        hang_up(0);
    }
}

// Milliseconds to when the oldest will have been silent for too long.
int Server::timeout() const noexcept {
    if (count_ == 0) {
        return -1;
    }
    const int64_t left = answer_timeout - (now() - silent_[0].since);
    return static_cast<int>(std::max<int64_t>(left, 0) / 1'000'000) + 1;
}

void Server::welcome() noexcept {
    const int made = observe::make_own(
        [this] { return accept4(listening_, nullptr, nullptr, SOCK_CLOEXEC | SOCK_NONBLOCK); });
    uint32_t user = 0;
    if (made >= 0) {
        if (!sockets::is_own_user(made, &user) || answer(made)) {
            observe::forget_and_close(made);
        } else {
            keep(made);
        }
    } else if (errno != EAGAIN && errno != EINTR && errno != ECONNABORTED) {
        if (count_ > 0) {
            hang_up(0); // what it takes may be what is short
        }
        rest();
    }
}

void Server::keep(int socket) noexcept {
    if (count_ == most_silent) {
        hang_up(0);
    }
    if (watch(epoll_, socket)) {
        silent_[count_++] = {socket, now()};
    } else {
        observe::forget_and_close(socket);
    }
}

void Server::hear(int socket) noexcept {
    const auto found = std::find_if(silent_, silent_ + count_,
                                    [&](const Silent &each) { return each.socket == socket; });
    if (found != silent_ + count_ && answer(socket)) {
        hang_up(static_cast<size_t>(found - silent_));
    }
}

void Server::hang_up(size_t index) noexcept {
    leave(epoll_, silent_[index].socket);
    std::copy(silent_ + index + 1, silent_ + count_, silent_ + index);
    --count_;
}

Server &server() {
    static observe::Immortal<Server> the_server;
    return the_server.value;
}

emm_status start_thread() {
    sigset_t all, before;
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before);
    emm_status status = EMM_OK;
    try {
        std::thread([] {
            pthread_setname_np(pthread_self(), "emm-ipc");
            server().run();
        }).detach();
    } catch (const std::exception &error) { // of the system, or std::bad_alloc
        status = fail_serving("thread", error.what());
    }
    pthread_sigmask(SIG_SETMASK, &before, nullptr);
    return status;
}

emm_status start_once() {
    static std::mutex mutex;
    static bool started = false;
    const std::lock_guard lock(mutex);
    if (started) {
        return EMM_OK;
    }
    const emm_status opened = server().open();
    const emm_status status = opened == EMM_OK ? start_thread() : opened;
    started = status == EMM_OK;
    return status;
}

} // namespace

emm_status start_serving() noexcept {
    try {
        return start_once();
    } catch (const std::bad_alloc &) {
        return fail_serving("memory", "the process's socket cannot be made");
    }
}

} // namespace emm::sharing

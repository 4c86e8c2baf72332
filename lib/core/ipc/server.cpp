// The thread that hands out descriptors.
//
// There is one in a process, from its first export of that kind on, with one listening socket. It
// stays until the process ends: another export may come at any time, and a thread that waits in
// poll costs nothing. Nobody joins it and no exit handler stops it. It blocks all signals. A
// forked child has neither the thread nor, once the fork handler has run, the sockets.
//
// It never waits for a peer: a request is one message, and so is its answer, which goes into the
// peer's empty queue at once. A peer that is silent for longer than `patience` is hung up on, or
// as soon as its place is needed; one that is another user's, at once.
#include "core/ipc/server.h"

#include "core/ipc/offers.h"
#include "core/ipc/socket.h"
#include "core/ipc/wire.h"
#include "observe/descriptors.h"
#include "observe/error.h"
#include "observe/log.h"

#include <algorithm>
#include <cerrno>
#include <mutex>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <string>
#include <sys/socket.h>
#include <system_error>
#include <thread>
#include <unistd.h>

namespace emm::core::ipc {
namespace {

constexpr size_t most_peers = 32;
constexpr int backlog = 64;

struct Peer {
    int socket;
    int64_t heard; // when it last asked
};

class Server {
public:
    explicit Server(int listening) : listening_(listening) {}
    [[noreturn]] void run() noexcept {
        for (;;) {
            step();
        }
    }

private:
    void step() noexcept {
        pollfd waiting[most_peers + 1] = {{listening_, POLLIN, 0}};
        for (size_t i = 0; i < count_; ++i) {
            waiting[i + 1] = {peers_[i].socket, POLLIN, 0};
        }
        if (poll(waiting, static_cast<nfds_t>(count_ + 1), timeout()) < 0) {
            return;
        }
        for (size_t i = count_; i-- > 0;) {
            const bool silent = waiting[i + 1].revents == 0;
            if (silent ? now() - peers_[i].heard > patience : !answer(peers_[i])) {
                hang_up(i);
            }
        }
        if (waiting[0].revents != 0) {
            welcome();
        }
    }

    // Milliseconds to when somebody will have been silent for too long.
    int timeout() const noexcept {
        return count_ == 0 ? -1 : static_cast<int>(patience / 1'000'000) + 1;
    }

    void welcome() noexcept {
        const int made = observe::make_own(
            [this] { return accept4(listening_, nullptr, nullptr, SOCK_CLOEXEC | SOCK_NONBLOCK); });
        uint32_t user = 0;
        if (made < 0) {
            if (errno == EMFILE || errno == ENFILE) {
                usleep(10'000); // it is still there to be accepted
            }
            return;
        }
        if (!is_own_user(made, &user)) {
            observe::forget_and_close(made);
            return;
        }
        if (count_ == most_peers) {
            hang_up(static_cast<size_t>(
                std::min_element(peers_, peers_ + count_,
                                 [](const Peer &a, const Peer &b) { return a.heard < b.heard; }) -
                peers_));
        }
        peers_[count_++] = {made, now()};
    }

    // False: there is nothing more to say.
    static bool answer(Peer &peer) noexcept {
        Request request;
        int unwanted[parts_at_once];
        uint32_t count = 0;
        const long got = receive_message(peer.socket, &request, sizeof request, unwanted, &count);
        for (uint32_t i = 0; i < count; ++i) {
            observe::forget_and_close(unwanted[i]);
        }
        if (got != static_cast<long>(sizeof request) || request.magic != wire_magic) {
            return got < 0 && (errno == EAGAIN || errno == EINTR);
        }
        peer.heard = now();
        const Batch batch(request);
        const Reply &reply = batch.reply();
        return send_message(peer.socket, &reply, sizeof reply, batch.descriptors(), reply.count);
    }

    void hang_up(size_t index) noexcept {
        observe::forget_and_close(peers_[index].socket);
        peers_[index] = peers_[--count_];
    }

    const int listening_;
    size_t count_ = 0;
    Peer peers_[most_peers];
};

emm_status start_thread(int listening) {
    sigset_t all, before;
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before);
    emm_status status = EMM_OK;
    try {
        std::thread([listening] {
            pthread_setname_np(pthread_self(), "emm-ipc");
            Server(listening).run();
        }).detach();
    } catch (const std::exception &error) { // of the system, or std::bad_alloc
        status = observe::fail(EMM_E_OUT_OF_HOST_MEMORY, 0, [&] {
            return std::string("no thread to serve exports with: ") + error.what();
        });
    }
    pthread_sigmask(SIG_SETMASK, &before, nullptr);
    return status;
}

} // namespace

emm_status start_serving() noexcept {
    static std::mutex mutex;
    static bool started = false;
    const std::lock_guard lock(mutex);
    if (started) {
        return EMM_OK;
    }
    int listening = -1;
    emm_status status = listen_as(serving_number, backlog, &listening);
    if (status == EMM_OK && (status = start_thread(listening)) != EMM_OK) {
        observe::forget_and_close(listening);
    }
    started = status == EMM_OK;
    return status;
}

} // namespace emm::core::ipc

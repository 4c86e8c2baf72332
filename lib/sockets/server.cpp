#include "sockets/server.h"

#include "observe/descriptors.h"
#include "observe/log.h"
#include "sockets/message.h"
#include "sockets/user.h"

#include <emm/plugin.h>

#include <algorithm>
#include <cerrno>
#include <exception>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <thread>
#include <unistd.h>

namespace emm::sockets {

void Server::run() noexcept {
    while (step()) {
    }
    // The program that closed the listener may also have closed these, and reused their numbers.
    count_ = 0;
}

bool Server::step() noexcept {
    pollfd waiting[1 + most_silent];
    waiting[0] = {listener_.number(), POLLIN, 0};
    for (size_t i = 0; i < count_; ++i) {
        waiting[1 + i] = {waiting_[i].socket, POLLIN, 0};
    }
    if (waiting[0].fd < 0) {
        return false;
    }
    if (poll(waiting, 1 + count_, timeout()) < 0) {
        if (errno == EINVAL && count_ > 0) { // more than RLIMIT_NOFILE, which may fall at any time
            hang_up(0);
            return true;
        }
        const bool may_pass = errno == EINTR || errno == EAGAIN || errno == ENOMEM;
        if (may_pass && errno != EINTR) {
            usleep(10'000);
        }
        return may_pass;
    }
    for (size_t i = count_; i-- > 0;) {
        if (waiting[1 + i].revents != 0 && receive_request(waiting_[i].socket)) {
            hang_up(i);
        }
    }
    while (count_ > 0 && now() - waiting_[0].since > silence_) {
        hang_up(0);
    }
    if (waiting[0].revents != 0) {
        const int listening = listener_.number();
        accept_peers(listening);
        return listening >= 0;
    }
    return true;
}

// Milliseconds until the oldest peer's silence is too long, or before_wait_'s time is up.
int Server::timeout() const noexcept {
    const int64_t most = before_wait_ ? before_wait_() : -1;
    if (count_ == 0 && most < 0) {
        return -1;
    }
    int64_t left = count_ == 0 ? most : silence_ - (now() - waiting_[0].since);
    left = most < 0 ? left : std::min(left, most);
    return static_cast<int>(std::max<int64_t>(left, 0) / 1'000'000) + 1;
}

void Server::accept_peers(int listening) noexcept {
    const int made = observe::make_own(
        [listening] { return accept4(listening, nullptr, nullptr, SOCK_CLOEXEC | SOCK_NONBLOCK); });
    uint32_t user = 0;
    if (made >= 0) {
        if (!is_own_user(made, &user) || receive_request(made)) {
            observe::forget_and_close(made);
        } else {
            keep(made);
        }
    } else if (errno != EAGAIN && errno != EINTR && errno != ECONNABORTED) {
        if (count_ > 0) {
            hang_up(0); // its descriptor may be the one that is missing
        }
        usleep(10'000); // a descriptor may be free again in a moment; peers that wait stay
    }
}

bool Server::receive_request(int socket) noexcept {
    alignas(std::max_align_t) unsigned char request[longest_request];
    Descriptors unwanted;
    const long got = receive_message(socket, request, sizeof request, unwanted);
    if (got < 0 && (errno == EAGAIN || errno == EINTR)) {
        return false;
    }
    answer_(socket, request, got);
    return true;
}

void Server::keep(int socket) noexcept {
    if (count_ == most_silent) {
        hang_up(0);
    }
    waiting_[count_++] = {socket, now()};
}

void Server::hang_up(size_t index) noexcept {
    observe::forget_and_close(waiting_[index].socket);
    std::copy(waiting_ + index + 1, waiting_ + count_, waiting_ + index);
    --count_;
}

bool start_thread(const char *name, std::function<void()> body) noexcept {
    sigset_t all, before;
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before);
    bool started = true;
    try {
        std::thread([name, body = std::move(body)] {
            pthread_setname_np(pthread_self(), name);
            body();
        }).detach();
    } catch (const std::exception &error) { // std::system_error or std::bad_alloc
        observe::log(EMM_LOG_DEBUG, "cannot start the thread {}: {}", name, error.what());
        started = false;
    }
    pthread_sigmask(SIG_SETMASK, &before, nullptr);
    return started;
}

} // namespace emm::sockets

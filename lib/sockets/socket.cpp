#include "sockets/socket.h"

#include "observe/descriptors.h"
#include "observe/process.h"

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <pthread.h>
#include <sys/time.h>
#include <unistd.h>

namespace emm::sockets {
namespace {

constinit std::atomic<Listener *> last_opened{nullptr};

void limit_waiting(int socket, int64_t nanoseconds) noexcept {
    const int64_t whole = std::max<int64_t>(nanoseconds / 1000, 1); // 0 would be no limit
    const timeval limit = {static_cast<time_t>(whole / 1'000'000),
                           static_cast<suseconds_t>(whole % 1'000'000)};
    setsockopt(socket, SOL_SOCKET, SO_RCVTIMEO, &limit, sizeof limit);
    setsockopt(socket, SOL_SOCKET, SO_SNDTIMEO, &limit, sizeof limit);
}

// A listening socket, or -1 with errno.
int make_listening(const Address &address, int backlog) noexcept {
    const int made = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    if (made >= 0 &&
        (bind(made, address.get(), address.length) != 0 || listen(made, backlog) != 0)) {
        const int error = errno;
        close(made);
        errno = error;
        return -1;
    }
    return made;
}

} // namespace

int connect_within(int socket, const Address &address, int64_t &left) noexcept {
    int error = EINTR;
    while (error == EINTR && left > 0) {
        limit_waiting(socket, left);
        const int64_t before = now();
        error = connect(socket, address.get(), address.length) == 0 ? 0 : errno;
        left -= now() - before;
    }
    return error;
}

// observe's fork handlers for descriptors make a fork wait while a socket is being made.
void Listener::leave_to_parent() {
    for (Listener *each = observe::is_forked_child() ? last_opened.load() : nullptr; each;
         each = each->next_) {
        each->close();
    }
}

int Listener::open(std::string_view name, int backlog) noexcept {
    static const int registered = pthread_atfork(nullptr, nullptr, &leave_to_parent);
    if (registered != 0) {
        return registered;
    }
    const observe::NoFork held;
    address_ = address_of(name);
    if (!listed_) {
        listed_ = true;
        next_ = last_opened.load();
        while (!last_opened.compare_exchange_weak(next_, this)) {
        }
    }
    const int made = make_listening(address_, backlog);
    number_.store(made);
    return made >= 0 ? 0 : errno;
}

Listener::Owner Listener::owner_of(int socket) const noexcept {
    sockaddr_un found;
    socklen_t length = sizeof found;
    if (socket < 0) {
        return Owner::other;
    }
    if (getsockname(socket, reinterpret_cast<sockaddr *>(&found), &length) != 0) {
        return errno == EBADF || errno == ENOTSOCK ? Owner::other : Owner::unknown;
    }
    const bool is_own =
        length == address_.length && std::memcmp(&found, &address_.address, length) == 0;
    return is_own ? Owner::listener : Owner::other;
}

int Listener::number() const noexcept {
    const int socket = number_.load();
    return owner_of(socket) != Owner::other ? socket : -1;
}

void Listener::close() noexcept {
    const observe::NoFork held;
    if (const int socket = number_.load(); owner_of(socket) == Owner::listener) {
        ::close(socket);
    }
    number_.store(-1);
}

} // namespace emm::sockets

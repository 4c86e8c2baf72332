#include "monitor/socket.h"

#include "monitor/protocol.h"
#include "observe/descriptors.h"
#include "observe/log.h"
#include "observe/process.h"

#include <emm/plugin.h>

#include <fmt/format.h>

#include <atomic>
#include <cerrno>
#include <cstddef>
#include <cstring>
#include <pthread.h>
#include <sys/random.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

namespace emm::monitor {
namespace {

constexpr int backlog = 128;

struct Address {
    sockaddr_un address;
    socklen_t length;
};

// Written before the number is.
constinit Address own_address = {};
constinit std::atomic<int> number{-1};

// By the fork handlers that observe has for descriptors, a fork waits while a socket is made.
void leave_to_parent() {
    if (observe::is_forked_child()) {
        close_socket();
    }
}

bool has_fork_handler() noexcept {
    static const bool registered = pthread_atfork(nullptr, nullptr, &leave_to_parent) == 0;
    return registered;
}

bool is_own(int socket) noexcept {
    sockaddr_un address;
    socklen_t length = sizeof address;
    return getsockname(socket, reinterpret_cast<sockaddr *>(&address), &length) == 0 &&
           length == own_address.length && std::memcmp(&address, &own_address.address, length) == 0;
}

bool make_address() noexcept {
    uint64_t random = 0;
    if (getrandom(&random, sizeof random, 0) != sizeof random) {
        return false;
    }
    own_address.address.sun_family = AF_UNIX;
    char *const text = own_address.address.sun_path + 1; // the first byte is 0: an abstract name
    const auto end = fmt::format_to_n(text, sizeof own_address.address.sun_path - 1, "{}{}-{:0{}x}",
                                      name_prefix, getpid(), random, random_digits);
    own_address.length =
        static_cast<socklen_t>(end.out - reinterpret_cast<char *>(&own_address.address));
    return true;
}

// A listening socket, or -1 with errno.
int make_socket() noexcept {
    const int made = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    const auto *const address = reinterpret_cast<const sockaddr *>(&own_address.address);
    if (made >= 0 && (bind(made, address, own_address.length) != 0 || listen(made, backlog) != 0)) {
        const int error = errno;
        close(made);
        errno = error;
        return -1;
    }
    return made;
}

} // namespace

bool open_socket() noexcept {
    if (!has_fork_handler() || !make_address()) {
        return false;
    }
    int made = -1;
    {
        const observe::NoFork held;
        made = make_socket();
        number.store(made);
    }
    if (made < 0) {
        observe::log(EMM_LOG_DEBUG, "emm top cannot ask this process: socket: {}",
                     std::strerror(errno));
    }
    return made >= 0;
}

int own_socket() noexcept {
    const int socket = number.load();
    return socket >= 0 && is_own(socket) ? socket : -1;
}

void close_socket() noexcept {
    const observe::NoFork held;
    if (const int socket = own_socket(); socket >= 0) {
        close(socket);
    }
    number.store(-1);
}

} // namespace emm::monitor

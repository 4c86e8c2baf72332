#include "sharing/socket.h"

#include "observe/descriptors.h"
#include "observe/error.h"
#include "sockets/user.h"

#include <fmt/ranges.h>

#include <cerrno>
#include <cstddef>
#include <cstring>
#include <string>
#include <sys/random.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

namespace emm::sharing {
namespace {

struct Name {
    sockaddr_un address = {};
    socklen_t length = 0;
    const sockaddr *get() const { return reinterpret_cast<const sockaddr *>(&address); }
};

Name name_of(const uint8_t (&nonce)[8]) noexcept {
    Name name;
    name.address.sun_family = AF_UNIX;
    char *text = name.address.sun_path + 1; // the first byte is 0: an abstract name
    const auto end = fmt::format_to_n(text, sizeof name.address.sun_path - 1, "emm-ipc-{:02x}",
                                      fmt::join(nonce, ""));
    name.length = static_cast<socklen_t>(end.out - reinterpret_cast<char *>(&name.address));
    return name;
}

emm_status fail_socket(const char *call) {
    return observe::fail(EMM_E_OUT_OF_HOST_MEMORY, 0, "no socket for an export: {}: {}", call,
                         std::strerror(errno));
}

// The kernel's number of a socket's network namespace, which takes no /proc; 0 before Linux 5.14.
uint64_t namespace_cookie(int socket) noexcept {
    constexpr int so_netns_cookie = 71; // missing in older headers
    uint64_t cookie = 0;
    socklen_t length = sizeof cookie;
    return getsockopt(socket, SOL_SOCKET, so_netns_cookie, &cookie, &length) == 0 ? cookie : 0;
}

} // namespace

emm_status get_nonce(uint8_t (&ret_nonce)[8]) {
    struct Nonce {
        uint8_t bytes[8] = {};
        bool known = getrandom(bytes, sizeof bytes, 0) == sizeof bytes;
    };
    static const Nonce nonce{};
    if (!nonce.known) {
        return observe::fail(EMM_E_NOT_SUPPORTED, 0, "getrandom gives no number for this process");
    }
    std::memcpy(ret_nonce, nonce.bytes, sizeof nonce.bytes);
    return EMM_OK;
}

// Exporter and importer have to find the number in the same way: where no socket is to be had, it
// is not known.
uint32_t network_namespace() noexcept {
    const int asking =
        observe::make_own([] { return socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0); });
    if (asking < 0) {
        return 0;
    }
    const uint64_t cookie = namespace_cookie(asking);
    observe::forget_and_close(asking);
    if (cookie != 0) {
        const auto folded = static_cast<uint32_t>(cookie ^ cookie >> 32);
        return folded != 0 ? folded : 1;
    }
    struct stat it;
    return stat("/proc/self/ns/net", &it) == 0 ? static_cast<uint32_t>(it.st_ino) : 0;
}

Sight sight_of(uint32_t exporter, uint32_t own) noexcept {
    if (exporter == 0 || own == 0) {
        return Sight::unknown;
    }
    return exporter == own ? Sight::here : Sight::elsewhere;
}

emm_status listen_for_importers(int backlog, int *ret_socket) {
    uint8_t nonce[8];
    if (const emm_status status = get_nonce(nonce); status != EMM_OK) {
        return status;
    }
    const int made = observe::make_own(
        [] { return socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK, 0); });
    if (made < 0) {
        return fail_socket("socket");
    }
    const Name name = name_of(nonce);
    const char *const failed = bind(made, name.get(), name.length) != 0 ? "bind"
                               : listen(made, backlog) != 0             ? "listen"
                                                                        : nullptr;
    if (failed) {
        const emm_status status = fail_socket(failed);
        observe::forget_and_close(made);
        return status;
    }
    *ret_socket = made;
    return EMM_OK;
}

int connect_to(int socket, const uint8_t (&nonce)[8]) noexcept {
    const Name name = name_of(nonce);
    return connect(socket, name.get(), name.length) == 0 ? 0 : errno;
}

emm_status check_user(int socket) {
    uint32_t user = 0;
    if (sockets::is_own_user(socket, &user)) {
        return EMM_OK;
    }
    const uint32_t own = geteuid();
    const std::string found =
        user == own ? fmt::format("the overflow id {}, which every user has that this user "
                                  "namespace does not map",
                                  user)
                    : fmt::format("one of user {}", user);
    return observe::refuse("an IPC handle's exporter: expected a process of user {}, found {}", own,
                           found);
}

} // namespace emm::sharing

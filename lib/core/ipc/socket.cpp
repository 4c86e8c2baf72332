#include "core/ipc/socket.h"

#include "observe/descriptors.h"
#include "observe/error.h"

#include <cerrno>
#include <cstddef>
#include <cstdio>
#include <cstring>
#include <string>
#include <sys/random.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

namespace emm::core::ipc {
namespace {

struct Name {
    sockaddr_un address = {};
    socklen_t length = 0;
    const sockaddr *get() const { return reinterpret_cast<const sockaddr *>(&address); }
};

Name name_of(const uint8_t (&nonce)[16], uint64_t number) noexcept {
    Name name;
    name.address.sun_family = AF_UNIX;
    char *text = name.address.sun_path + 1; // the first byte is 0: an abstract name
    const size_t room = sizeof name.address.sun_path - 1;
    int used = std::snprintf(text, room, "emm-ipc-");
    for (const uint8_t byte : nonce) {
        used += std::snprintf(text + used, room - static_cast<size_t>(used), "%02x",
                              static_cast<unsigned>(byte));
    }
    used += std::snprintf(text + used, room - static_cast<size_t>(used), "-%llu",
                          static_cast<unsigned long long>(number));
    name.length =
        static_cast<socklen_t>(offsetof(sockaddr_un, sun_path) + 1 + static_cast<size_t>(used));
    return name;
}

emm_status fail_socket(const char *call) {
    return observe::fail(EMM_E_OUT_OF_HOST_MEMORY, 0, [call, error = errno] {
        return std::string("no socket for an export: ") + call + ": " + std::strerror(error);
    });
}

} // namespace

emm_status get_nonce(uint8_t (&ret_nonce)[16]) {
    struct Nonce {
        uint8_t bytes[16] = {};
        bool known = getrandom(bytes, sizeof bytes, 0) == sizeof bytes;
    };
    static const Nonce nonce{};
    if (!nonce.known) {
        return observe::fail(EMM_E_NOT_SUPPORTED, 0, "getrandom gives no number for this process");
    }
    std::memcpy(ret_nonce, nonce.bytes, sizeof nonce.bytes);
    return EMM_OK;
}

uint32_t network_namespace() noexcept {
    struct stat it;
    return stat("/proc/self/ns/net", &it) == 0 ? static_cast<uint32_t>(it.st_ino) : 0;
}

emm_status listen_as(uint64_t number, int backlog, int *ret_socket) {
    uint8_t nonce[16];
    if (const emm_status status = get_nonce(nonce); status != EMM_OK) {
        return status;
    }
    const Name name = name_of(nonce, number);
    const int made = observe::make_own(
        [] { return socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK, 0); });
    if (made < 0) {
        return fail_socket("socket");
    }
    if (bind(made, name.get(), name.length) != 0 || listen(made, backlog) != 0) {
        const emm_status status = fail_socket("bind");
        observe::forget_and_close(made);
        return status;
    }
    *ret_socket = made;
    return EMM_OK;
}

int connect_to(int socket, const uint8_t (&nonce)[16], uint64_t number) noexcept {
    const Name name = name_of(nonce, number);
    return connect(socket, name.get(), name.length) == 0 ? 0 : errno;
}

bool is_own_user(int socket, uint32_t *ret_user) noexcept {
    ucred peer = {};
    socklen_t length = sizeof peer;
    const bool known = getsockopt(socket, SOL_SOCKET, SO_PEERCRED, &peer, &length) == 0;
    *ret_user = known ? peer.uid : ~0u;
    return known && peer.uid == geteuid();
}

} // namespace emm::core::ipc

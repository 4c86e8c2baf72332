#include "core/ipc/socket.h"

#include "observe/error.h"

#include <atomic>
#include <cerrno>
#include <cstddef>
#include <cstdio>
#include <cstring>
#include <new>
#include <string>
#include <sys/random.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

namespace emm::core::ipc {
namespace {

// Walked by a forked child, in which no lock can be trusted: nodes are used again and never freed.
struct Node {
    std::atomic<int> descriptor{-1};
    Node *next = nullptr;
};
std::atomic<Node *> first_node{nullptr};

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
    const int made = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    if (made < 0) {
        return fail_socket("socket");
    }
    if (bind(made, name.get(), name.length) != 0 || listen(made, backlog) != 0 || !remember(made)) {
        const emm_status status = fail_socket("bind");
        close(made);
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

bool remember(int descriptor) noexcept {
    for (Node *node = first_node.load(std::memory_order_acquire); node; node = node->next) {
        int none = -1;
        if (node->descriptor.compare_exchange_strong(none, descriptor)) {
            return true;
        }
    }
    auto *node = new (std::nothrow) Node;
    if (!node) {
        return false;
    }
    node->descriptor.store(descriptor, std::memory_order_relaxed);
    node->next = first_node.load(std::memory_order_relaxed);
    while (!first_node.compare_exchange_weak(node->next, node, std::memory_order_release)) {
    }
    return true;
}

void forget_and_close(int descriptor) noexcept {
    for (Node *node = first_node.load(std::memory_order_acquire); node; node = node->next) {
        int wanted = descriptor;
        if (node->descriptor.compare_exchange_strong(wanted, -1)) {
            break;
        }
    }
    close(descriptor);
}

void leave_sockets_to_parent() noexcept {
    for (Node *node = first_node.load(std::memory_order_acquire); node; node = node->next) {
        if (const int descriptor = node->descriptor.exchange(-1); descriptor >= 0) {
            close(descriptor);
        }
    }
}

} // namespace emm::core::ipc

#include "core/ipc/mark.h"

#include "observe/error.h"

#include <atomic>
#include <cerrno>
#include <cstddef>
#include <cstdio>
#include <cstring>
#include <memory>
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

// The descriptors of this process's marks, so that a child can close its copies.
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

void forget(int descriptor) noexcept {
    for (Node *node = first_node.load(std::memory_order_acquire); node; node = node->next) {
        int wanted = descriptor;
        if (node->descriptor.compare_exchange_strong(wanted, -1)) {
            return;
        }
    }
}

struct Name {
    sockaddr_un address = {};
    socklen_t length = 0;
    const sockaddr *get() const { return reinterpret_cast<const sockaddr *>(&address); }
};

Name name_of(const uint8_t (&nonce)[16], uint64_t generation) {
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
                          static_cast<unsigned long long>(generation));
    name.length =
        static_cast<socklen_t>(offsetof(sockaddr_un, sun_path) + 1 + static_cast<size_t>(used));
    return name;
}

emm_status fail_mark(const char *call) {
    return observe::fail(EMM_E_OUT_OF_HOST_MEMORY, 0,
                         std::string("no socket to mark an export with: ") + call + ": " +
                             std::strerror(errno));
}

emm_status ended(const emm_ipc_handle &handle) {
    return observe::fail(EMM_E_NOT_OWNED, 0,
                         "an IPC handle's export: expected one that goes on, found that number " +
                             std::to_string(handle.generation) +
                             " of its exporter was released, or the exporter has ended");
}

emm_status check_user(int descriptor) {
    ucred peer = {};
    socklen_t length = sizeof peer;
    if (getsockopt(descriptor, SOL_SOCKET, SO_PEERCRED, &peer, &length) == 0 &&
        peer.uid == geteuid()) {
        return EMM_OK;
    }
    return observe::fail(EMM_E_INVALID_VALUE, 0,
                         "an IPC handle's exporter: expected a process of user " +
                             std::to_string(geteuid()) + ", found one of user " +
                             std::to_string(peer.uid));
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

emm_status set_mark(uint64_t generation, int *ret_mark) {
    uint8_t nonce[16];
    if (const emm_status status = get_nonce(nonce); status != EMM_OK) {
        return status;
    }
    const Name name = name_of(nonce, generation);
    const int descriptor = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    if (descriptor < 0) {
        return fail_mark("socket");
    }
    if (bind(descriptor, name.get(), name.length) != 0 || listen(descriptor, 1) != 0 ||
        !remember(descriptor)) {
        const emm_status status = fail_mark("bind");
        close(descriptor);
        return status;
    }
    *ret_mark = descriptor;
    return EMM_OK;
}

void clear_mark(int mark) noexcept {
    forget(mark);
    close(mark);
}

// A queue that is full of earlier askers says that the mark is there as well.
emm_status check_mark(const emm_ipc_handle &handle) {
    if (handle.flags == 0 || handle.flags != network_namespace()) {
        return EMM_OK;
    }
    const Name name = name_of(handle.nonce, handle.generation);
    const int descriptor = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    if (descriptor < 0) {
        return fail_mark("socket");
    }
    emm_status status = EMM_OK;
    if (connect(descriptor, name.get(), name.length) == 0) {
        status = check_user(descriptor);
    } else if (errno != EAGAIN) {
        status = ended(handle);
    }
    close(descriptor);
    return status;
}

void leave_marks_to_parent() noexcept {
    for (Node *node = first_node.load(std::memory_order_acquire); node; node = node->next) {
        if (const int descriptor = node->descriptor.exchange(-1); descriptor >= 0) {
            close(descriptor);
        }
    }
}

} // namespace emm::core::ipc

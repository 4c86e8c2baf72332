#include "sharing/handle/wire.h"

#include "observe/descriptors.h"
#include "observe/error.h"

#include <cerrno>
#include <cstring>
#include <fmt/ranges.h>
#include <sys/random.h>
#include <sys/stat.h>

namespace emm::sharing {

Asked what_is_asked(const void *message, long size) noexcept {
    uint32_t magic = 0;
    if (size >= static_cast<long>(sizeof magic)) {
        std::memcpy(&magic, message, sizeof magic);
    }
    return size == static_cast<long>(sizeof(Request)) && magic == wire_magic ? Asked::parts
           : size == static_cast<long>(sizeof(HandleRequest)) && magic == handle_magic
               ? Asked::handle
               : Asked::nothing;
}

bool is_same(const uint8_t (&a)[64], const uint8_t (&b)[64]) noexcept {
    unsigned difference = 0;
    for (size_t i = 0; i < sizeof a; ++i) {
        difference |= static_cast<unsigned>(a[i] ^ b[i]);
    }
    return difference == 0;
}

namespace {

// The kernel's number of a socket's network namespace, which needs no /proc; 0 before Linux 5.14.
uint64_t namespace_cookie(int socket) noexcept {
    constexpr int so_netns_cookie = 71; // missing in older headers
    uint64_t cookie = 0;
    socklen_t length = sizeof cookie;
    return getsockopt(socket, SOL_SOCKET, so_netns_cookie, &cookie, &length) == 0 ? cookie : 0;
}

} // namespace

emm_status get_random(void *bytes, size_t size) {
    return getrandom(bytes, size, 0) == static_cast<ssize_t>(size)
               ? EMM_OK
               : observe::fail(EMM_E_NOT_SUPPORTED, 0, "no random number for an export: {}",
                               std::strerror(errno));
}

emm_status RandomOnce::get(uint8_t (&ret_bytes)[8]) {
    const std::lock_guard lock(mutex_);
    if (!known_) {
        EMM_TRY(get_random(bytes_, sizeof bytes_));
        known_ = true;
    }
    std::memcpy(ret_bytes, bytes_, sizeof bytes_);
    return EMM_OK;
}

emm_status get_nonce(uint8_t (&ret_nonce)[8]) {
    static constinit RandomOnce nonce;
    return nonce.get(ret_nonce);
}

// Exporter and importer must find the number in the same way. So if no socket can be made, the
// number is unknown.
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

std::string socket_name(const uint8_t *nonce) {
    return fmt::format("emm-ipc-{:02x}", fmt::join(nonce, nonce + 8, ""));
}

} // namespace emm::sharing

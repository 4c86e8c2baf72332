#include "sharing/liveness.h"

#include "observe/descriptors.h"
#include "observe/error.h"
#include "sharing/connection.h"
#include "sharing/name.h"
#include "sharing/server.h"
#include "sharing/socket.h"
#include "sharing/wire.h"

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <cstring>
#include <string>
#include <sys/random.h>
#include <sys/socket.h>
#include <sys/time.h>

namespace emm::sharing {
namespace {

emm_status fail_missing(const emm_ipc_handle &handle) {
    const uint32_t here = network_namespace();
    switch (sight_of(handle.flags, here)) {
    case Sight::here:
        return fail_ended(handle);
    case Sight::elsewhere:
        return observe::fail(
            EMM_E_NOT_SUPPORTED, 0,
            "an IPC handle's exporter: expected it in this process's network namespace, {}, where "
            "it can be asked, found it in {}; containers that share theirs (a pod, "
            "--network) can do this",
            here, handle.flags);
    default:
        return observe::fail(EMM_E_NOT_OWNED, 0,
                             "an IPC handle's export: expected one that can be seen from here, "
                             "found none: it was released, or its exporter has ended or is in "
                             "another network namespace, which cannot be told without /proc");
    }
}

emm_status fail_reaching(const emm_ipc_handle &handle, int error) {
    if (error == ECONNREFUSED) {
        return fail_missing(handle);
    }
    if (error == EAGAIN || error == EINTR) {
        return fail_busy("takes no connection");
    }
    const bool is_short = error == ENOMEM || error == ENOBUFS;
    return observe::fail(is_short ? EMM_E_OUT_OF_HOST_MEMORY : EMM_E_NOT_SUPPORTED, 0,
                         "an IPC handle's exporter cannot be asked: connect: {}",
                         std::strerror(error));
}

// Of a blocking socket.
void limit_waiting(int socket, int64_t nanoseconds) noexcept {
    const int64_t whole = std::max<int64_t>(nanoseconds / 1000, 1); // 0 would be no limit
    const timeval limit = {static_cast<time_t>(whole / 1'000'000),
                           static_cast<suseconds_t>(whole % 1'000'000)};
    setsockopt(socket, SOL_SOCKET, SO_RCVTIMEO, &limit, sizeof limit);
    setsockopt(socket, SOL_SOCKET, SO_SNDTIMEO, &limit, sizeof limit);
}

// A queue that is full says nothing of whose it is: wait for a place in it.
int connect_within(int socket, const emm_ipc_handle &handle, int64_t &left) noexcept {
    uint8_t nonce[8];
    std::memcpy(nonce, handle.nonce, sizeof nonce);
    int error = EINTR;
    while (error == EINTR && left > 0) {
        limit_waiting(socket, left);
        const int64_t before = now();
        error = connect_to(socket, nonce);
        left -= now() - before;
    }
    return error;
}

} // namespace

// Counted from a random number, as plugin.h says.
emm_status number_export(uint64_t *ret_generation) {
    struct First {
        uint64_t number = 0;
        bool known = getrandom(&number, sizeof number, 0) == sizeof number;
    };
    static const First first{};
    static std::atomic<uint64_t> count{0};
    if (!first.known) {
        return observe::fail(EMM_E_NOT_SUPPORTED, 0, "getrandom gives no number for an export");
    }
    const emm_status status = start_serving();
    if (status == EMM_OK) {
        *ret_generation = (first.number + count++) | UINT64_C(1) << 63;
    }
    return status;
}

emm_status fail_ended(const emm_ipc_handle &handle) {
    return observe::fail(EMM_E_NOT_OWNED, 0,
                         "an IPC handle's export: expected one that goes on, found that number {} "
                         "of its exporter was released, or the exporter has ended",
                         handle.generation);
}

emm_status fail_busy(const char *why) {
    return observe::fail(EMM_E_BUSY, 0,
                         "an IPC handle's exporter: expected an answer in 4 s, found that it is "
                         "busy ({}); try again",
                         why);
}

emm_status reach(const emm_ipc_handle &handle, int64_t &left, int *ret_socket) {
    const int asking =
        observe::make_own([] { return socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0); });
    if (asking < 0) {
        return observe::fail(EMM_E_OUT_OF_HOST_MEMORY, 0, "no socket to ask an exporter with: {}",
                             std::strerror(errno));
    }
    const int error = connect_within(asking, handle, left);
    const emm_status status = error == 0 ? check_user(asking) : fail_reaching(handle, error);
    if (status != EMM_OK) {
        observe::forget_and_close(asking);
        return status;
    }
    *ret_socket = asking;
    return EMM_OK;
}

emm_status check_liveness(const emm_ipc_handle &handle) {
    if (sight_of(handle.flags, network_namespace()) == Sight::elsewhere) {
        return EMM_OK;
    }
    emm_ipc_handle found = {};
    return Connection(handle, 0).ask_for_handle(write_name(handle), &found);
}

} // namespace emm::sharing

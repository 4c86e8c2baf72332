#include "core/ipc/mark.h"

#include "core/ipc/socket.h"
#include "observe/descriptors.h"
#include "observe/error.h"

#include <cerrno>
#include <cstring>
#include <string>
#include <sys/socket.h>
#include <unistd.h>

namespace emm::core::ipc {
namespace {

emm_status check_user(int socket) {
    uint32_t user = 0;
    if (is_own_user(socket, &user)) {
        return EMM_OK;
    }
    return observe::fail(EMM_E_INVALID_VALUE, 0,
                         "an IPC handle's exporter: expected a process of user " +
                             std::to_string(geteuid()) + ", found one of user " +
                             std::to_string(user));
}

} // namespace

emm_status set_mark(uint64_t generation, int *ret_mark) {
    return listen_as(generation, 1, ret_mark);
}

void clear_mark(int mark) noexcept {
    if (mark >= 0) {
        observe::forget_and_close(mark);
    }
}

emm_status fail_ended(const emm_ipc_handle &handle) {
    return observe::fail(EMM_E_NOT_OWNED, 0,
                         "an IPC handle's export: expected one that goes on, found that number " +
                             std::to_string(handle.generation) +
                             " of its exporter was released, or the exporter has ended");
}

// A queue that is full of earlier askers says that the mark is there as well.
emm_status check_mark(const emm_ipc_handle &handle) {
    if (handle.flags == 0 || handle.flags != network_namespace()) {
        return EMM_OK;
    }
    const int asking = observe::make_own(
        [] { return socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK, 0); });
    if (asking < 0) {
        return observe::fail(EMM_E_OUT_OF_HOST_MEMORY, 0,
                             std::string("no socket to look for an export with: ") +
                                 std::strerror(errno));
    }
    const int error = connect_to(asking, handle.nonce, handle.generation);
    const emm_status status = error == 0        ? check_user(asking)
                              : error == EAGAIN ? EMM_OK
                                                : fail_ended(handle);
    observe::forget_and_close(asking);
    return status;
}

} // namespace emm::core::ipc

#include "core/ipc/connection.h"

#include "core/ipc/mark.h"
#include "core/ipc/socket.h"
#include "driver/driver.h"
#include "observe/descriptors.h"
#include "observe/error.h"

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <poll.h>
#include <string>
#include <sys/socket.h>
#include <unistd.h>

namespace emm::core::ipc {
namespace {

constexpr int64_t for_a_part = 50'000; // nanoseconds
constexpr uint64_t most_parts = 1 << 20;

emm_status fail_reply(const emm_ipc_handle &handle, const Reply &reply) {
    if (reply.status == EMM_E_NOT_OWNED) {
        return fail_ended(handle);
    }
    if (reply.driver_result != 0) {
        return driver::fail(static_cast<CUresult>(reply.driver_result),
                            "in the exporter, cuMemExportToShareableHandle");
    }
    return observe::fail(EMM_E_INVALID_VALUE, 0,
                         "an IPC handle's exporter: expected the parts of an export, found an "
                         "answer with none");
}

void close_all(const int *descriptors, uint32_t count) noexcept {
    for (uint32_t i = 0; i < count; ++i) {
        observe::forget_and_close(descriptors[i]);
    }
}

} // namespace

Connection::Connection(const emm_ipc_handle &handle, uint64_t parts) noexcept
    : handle_(handle), parts_(parts),
      left_(patience + for_a_part * static_cast<int64_t>(std::min(parts, most_parts))) {}

Connection::~Connection() {
    if (socket_ >= 0) {
        observe::forget_and_close(socket_);
    }
}

emm_status Connection::fail_connection(int error) const {
    if (error != ECONNREFUSED) {
        const bool late = error == EAGAIN || error == EINTR;
        return observe::fail(EMM_E_BUSY, 0,
                             late ? std::string("an IPC handle's exporter: expected an answer in "
                                                "4 s, found none")
                                  : std::string("an IPC handle's exporter cannot be asked: ") +
                                        std::strerror(error));
    }
    const uint32_t here = network_namespace();
    if (handle_.flags == 0 || handle_.flags == here) {
        return fail_ended(handle_);
    }
    return observe::fail(EMM_E_NOT_SUPPORTED, 0,
                         "an IPC handle's exporter: expected it in this process's network "
                         "namespace, " +
                             std::to_string(here) + ", where descriptors can be had, found it in " +
                             std::to_string(handle_.flags) +
                             "; containers that share theirs (a pod, --network) can do this");
}

emm_status Connection::limit_waiting() {
    if (left_ <= 0) {
        return fail_connection(EAGAIN);
    }
    const int64_t whole = std::max<int64_t>(left_ / 1000, 1);
    const timeval limit = {static_cast<time_t>(whole / 1'000'000),
                           static_cast<suseconds_t>(whole % 1'000'000)};
    setsockopt(socket_, SOL_SOCKET, SO_RCVTIMEO, &limit, sizeof limit);
    setsockopt(socket_, SOL_SOCKET, SO_SNDTIMEO, &limit, sizeof limit);
    return EMM_OK;
}

emm_status Connection::open() {
    socket_ = observe::make_own([] { return socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0); });
    if (socket_ < 0) {
        return observe::fail(EMM_E_OUT_OF_HOST_MEMORY, 0,
                             std::string("no socket to ask an exporter with: ") +
                                 std::strerror(errno));
    }
    int error = EINTR;
    while (error == EINTR) {
        if (const emm_status status = limit_waiting(); status != EMM_OK) {
            return status;
        }
        const int64_t before = now();
        error = connect_to(socket_, handle_.nonce, serving_number);
        left_ -= now() - before;
    }
    uint32_t user = 0;
    if (error != 0) {
        return fail_connection(error);
    }
    return is_own_user(socket_, &user)
               ? EMM_OK
               : observe::fail(EMM_E_INVALID_VALUE, 0,
                               "an IPC handle's exporter: expected a process of user " +
                                   std::to_string(geteuid()) + ", found one of user " +
                                   std::to_string(user));
}

// Taking it does not wait, because a fork waits for that.
void Connection::wait_for_message() {
    pollfd waiting = {socket_, POLLIN, 0};
    const int64_t before = now();
    poll(&waiting, 1, static_cast<int>(std::max<int64_t>(left_, 0) / 1'000'000) + 1);
    left_ -= now() - before;
}

emm_status Connection::receive(Reply *ret_reply, int (&ret_descriptors)[parts_at_once]) {
    for (;;) {
        if (left_ <= 0) {
            return fail_connection(EAGAIN);
        }
        uint32_t count = 0;
        wait_for_message();
        const long got =
            receive_message(socket_, ret_reply, sizeof *ret_reply, ret_descriptors, &count);
        const int error = errno;
        if (got < 0 && (error == EINTR || error == EAGAIN)) {
            continue; // it has not come yet
        }
        if (got <= 0) {
            return got == 0 ? fail_ended(handle_) : fail_connection(error);
        }
        const bool whole = got == static_cast<long>(sizeof *ret_reply) &&
                           ret_reply->magic == wire_magic && ret_reply->count >= count;
        if (whole && ret_reply->status == EMM_OK && ret_reply->total == parts_ && count > 0) {
            ret_reply->count = count; // fewer came, if there was no room for more
            return EMM_OK;
        }
        close_all(ret_descriptors, count);
        if (whole && ret_reply->count > 0 && count == 0) {
            return observe::fail(EMM_E_OUT_OF_HOST_MEMORY, 0,
                                 "this process has no descriptor left to open an export with");
        }
        return fail_reply(handle_, whole ? *ret_reply : Reply{});
    }
}

emm_status Connection::ask(uint64_t first, Reply *ret_reply,
                           int (&ret_descriptors)[parts_at_once]) {
    Request request = {};
    request.magic = wire_magic;
    request.most = parts_at_once;
    std::memcpy(request.nonce, handle_.nonce, sizeof request.nonce);
    request.generation = handle_.generation;
    std::memcpy(request.handle, handle_.handle, sizeof request.handle);
    request.first = first;
    if (!send_message(socket_, &request, sizeof request, nullptr, 0)) {
        return errno == EPIPE || errno == ECONNRESET ? fail_ended(handle_) : fail_connection(errno);
    }
    return receive(ret_reply, ret_descriptors);
}

} // namespace emm::core::ipc

#include "sharing/connection.h"

#include "driver/driver.h"
#include "observe/descriptors.h"
#include "observe/error.h"
#include "sharing/liveness.h"

#include <fmt/format.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <poll.h>
#include <string_view>
#include <unistd.h>

namespace emm::sharing {
namespace {

constexpr int64_t for_a_part = 5'000'000; // nanoseconds: with a hundred importers beside this one

emm_status refuse(const char *expected, std::string_view found) {
    return observe::refuse("an IPC handle's exporter: expected {}, found {}", expected, found);
}

} // namespace

struct Connection::Socket {
    int descriptor = -1;
    Socket() = default;
    ~Socket() {
        if (descriptor >= 0) {
            observe::forget_and_close(descriptor);
        }
    }
    Socket(const Socket &) = delete;
    Socket &operator=(const Socket &) = delete;
};

// What the exporter says is looked at before it is used: it may be any program of this user.
emm_status Connection::check(const Reply &reply, Descriptors &descriptors) const {
    if (reply.magic != wire_magic) {
        return refuse("the parts of an export", "something else");
    }
    if (reply.status == EMM_E_NOT_OWNED) {
        return fail_ended(handle_);
    }
    if (reply.status != EMM_OK && reply.driver_result != 0) {
        return driver::fail(driver::result_of(reply.driver_result),
                            "in the exporter, cuMemExportToShareableHandle");
    }
    if (reply.status != EMM_OK || reply.count == 0 || reply.count < descriptors.count()) {
        return refuse("the parts of an export", "an answer with none");
    }
    if (reply.total != parts_ || reply.bytes != handle_.exported_size) {
        return refuse("the export that the handle tells of",
                      fmt::format("{} bytes in {} parts", reply.bytes, reply.total));
    }
    if (descriptors.count() == 0) {
        return observe::fail(EMM_E_OUT_OF_HOST_MEMORY, 0,
                             "this process has no descriptor left to open an export with");
    }
    return EMM_OK;
}

emm_status Connection::check(const HandleReply &reply) const {
    if (reply.magic != handle_magic) {
        return refuse("the handle of an export", "something else");
    }
    if (reply.status == EMM_E_NOT_OWNED) {
        return fail_ended(handle_);
    }
    return reply.status == EMM_OK ? EMM_OK
                                  : refuse("the handle of an export", "an answer with none");
}

// An exporter that hangs up may have no room just now, and tells in its own way that it has ended:
// it cannot be connected to.
emm_status Connection::fail_exchange(int error, bool &ret_again) const {
    if (error == 0 || error == EPIPE || error == ECONNRESET || error == ENOTCONN) {
        ret_again = true;
        return fail_busy("hangs up");
    }
    return fail_busy(error == EAGAIN || error == EINTR ? "does not answer" : std::strerror(error));
}

void Connection::wait_for_message(const Socket &socket) {
    pollfd waiting = {socket.descriptor, POLLIN, 0};
    const int64_t before = now();
    poll(&waiting, 1, static_cast<int>(std::max<int64_t>(left_, 0) / 1'000'000) + 1);
    left_ -= now() - before;
}

emm_status Connection::exchange(const Socket &socket, const Messages &messages,
                                Descriptors &descriptors, bool &ret_again) {
    if (!send_message(socket.descriptor, messages.request, messages.request_size, nullptr, 0)) {
        return fail_exchange(errno, ret_again);
    }
    long got = -1;
    do { // taking it does not wait, because a fork waits for that
        wait_for_message(socket);
        got = receive_message(socket.descriptor, messages.reply, messages.reply_size, descriptors);
    } while (got < 0 && (errno == EAGAIN || errno == EINTR) && left_ > 0);
    if (got < 0 || (got == 0 && descriptors.count() == 0)) {
        return fail_exchange(got == 0 ? 0 : errno, ret_again);
    }
    if (got != static_cast<long>(messages.reply_size)) {
        std::memset(messages.reply, 0, messages.reply_size);
    }
    return EMM_OK;
}

emm_status Connection::converse(const Messages &messages, Descriptors &descriptors) {
    for (;;) {
        Socket socket;
        bool again = false;
        emm_status status = reach(handle_, left_, &socket.descriptor);
        if (status == EMM_OK) {
            status = exchange(socket, messages, descriptors, again);
        }
        if (!again || left_ <= 0) {
            return status;
        }
        constexpr int64_t pause = 1'000'000;
        usleep(pause / 1000);
        left_ -= pause;
    }
}

emm_status Connection::ask(uint64_t first, Reply *ret_reply, Descriptors &ret_descriptors) {
    Request request = {};
    request.magic = wire_magic;
    request.most = parts_at_once;
    std::memcpy(request.nonce, handle_.nonce, sizeof request.nonce);
    request.generation = handle_.generation;
    std::memcpy(request.handle, handle_.handle, sizeof request.handle);
    request.first = first;
    emm_status status =
        converse({&request, sizeof request, ret_reply, sizeof *ret_reply}, ret_descriptors);
    status = status == EMM_OK ? check(*ret_reply, ret_descriptors) : status;
    if (status == EMM_OK) {
        ret_reply->count = ret_descriptors.count(); // fewer, if there was no room for more
        left_ = std::min(answer_timeout, left_ + for_a_part * ret_reply->count);
    }
    return status;
}

emm_status Connection::ask_for_handle(const emm_ipc_name &name, emm_ipc_handle *ret_handle) {
    const HandleRequest request = {handle_magic, 0, name};
    HandleReply reply = {};
    Descriptors unwanted;
    emm_status status = converse({&request, sizeof request, &reply, sizeof reply}, unwanted);
    status = status == EMM_OK ? check(reply) : status;
    if (status == EMM_OK) {
        *ret_handle = reply.handle;
    }
    return status;
}

} // namespace emm::sharing

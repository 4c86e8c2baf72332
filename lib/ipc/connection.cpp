#include "ipc/connection.h"

#include "driver/driver.h"
#include "ipc/liveness.h"
#include "observe/descriptors.h"
#include "observe/error.h"

#include <fmt/format.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <poll.h>
#include <string_view>
#include <unistd.h>

namespace emm::ipc {
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

emm_status Connection::exchange(const Socket &socket, uint64_t first, Reply &reply,
                                Descriptors &descriptors, bool &ret_again) {
    Request request = {};
    request.magic = wire_magic;
    request.most = parts_at_once;
    std::memcpy(request.nonce, handle_.nonce, sizeof request.nonce);
    request.generation = handle_.generation;
    std::memcpy(request.handle, handle_.handle, sizeof request.handle);
    request.first = first;
    if (!send_message(socket.descriptor, &request, sizeof request, nullptr, 0)) {
        return fail_exchange(errno, ret_again);
    }
    long got = -1;
    do { // taking it does not wait, because a fork waits for that
        wait_for_message(socket);
        got = receive_message(socket.descriptor, &reply, sizeof reply, descriptors);
    } while (got < 0 && (errno == EAGAIN || errno == EINTR) && left_ > 0);
    if (got < 0 || (got == 0 && descriptors.count() == 0)) {
        return fail_exchange(got == 0 ? 0 : errno, ret_again);
    }
    return check(got == static_cast<long>(sizeof reply) ? reply : Reply{}, descriptors);
}

emm_status Connection::ask(uint64_t first, Reply *ret_reply, Descriptors &ret_descriptors) {
    for (;;) {
        Socket socket;
        bool again = false;
        emm_status status = reach(handle_, left_, &socket.descriptor);
        if (status == EMM_OK) {
            status = exchange(socket, first, *ret_reply, ret_descriptors, again);
        }
        if (status == EMM_OK) {
            ret_reply->count = ret_descriptors.count(); // fewer, if there was no room for more
            left_ = std::min(answer_timeout, left_ + for_a_part * ret_reply->count);
        }
        if (!again || left_ <= 0) {
            return status;
        }
        constexpr int64_t pause = 1'000'000;
        usleep(pause / 1000);
        left_ -= pause;
    }
}

} // namespace emm::ipc

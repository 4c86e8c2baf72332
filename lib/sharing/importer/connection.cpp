#include "sharing/importer/connection.h"

#include "driver/driver.h"
#include "observe/descriptors.h"
#include "observe/error.h"
#include "observe/file.h"
#include "sharing/handle/stamp.h"
#include "sockets/user.h"

#include <fmt/format.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <string>
#include <string_view>
#include <sys/socket.h>
#include <unistd.h>

namespace emm::sharing {
namespace {

constexpr int64_t for_a_part = 5'000'000; // nanoseconds: enough with a hundred other importers

emm_status refuse(const char *expected, std::string_view found) {
    return observe::refuse("an IPC handle's exporter: expected {}, found {}", expected, found);
}

emm_status fail_ended(const emm_ipc_handle &handle) {
    return observe::fail(EMM_E_NOT_OWNED, 0,
                         "the IPC handle's export (number {} of its exporter) was released, or the "
                         "exporter has ended",
                         handle.generation);
}

emm_status fail_busy(const char *why) {
    return observe::fail(
        EMM_E_BUSY, 0,
        "the IPC handle's exporter gave no answer in 4 s: it is busy ({}); try again", why);
}

emm_status fail_missing(const emm_ipc_handle &handle) {
    const uint32_t here = network_namespace();
    switch (sight_of(handle.flags, here)) {
    case Sight::here:
        return fail_ended(handle);
    case Sight::elsewhere:
        return observe::fail(
            EMM_E_NOT_SUPPORTED, 0,
            "the IPC handle's exporter cannot be reached: this process is in network namespace {}, "
            "the exporter in {}; let both containers share one (a pod, --network)",
            here, handle.flags);
    default:
        return observe::fail(
            EMM_E_NOT_OWNED, 0,
            "the IPC handle's export cannot be found: it was released, its exporter has ended, or "
            "the exporter is in another network namespace (unknown without /proc)");
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
                         "an IPC handle's exporter cannot be reached: connect: {}",
                         std::strerror(error));
}

emm_status check_user(int socket) {
    uint32_t user = 0;
    if (sockets::is_own_user(socket, &user)) {
        return EMM_OK;
    }
    if (user == sockets::unknown_user) {
        return observe::fail(EMM_E_NOT_SUPPORTED, 0,
                             "an IPC handle's exporter: its user cannot be found out: {}",
                             std::strerror(errno));
    }
    const uint32_t own = geteuid();
    const std::string found = user == own
                                  ? fmt::format("the overflow id {}, which stands for every user "
                                                "that this user namespace does not map",
                                                user)
                                  : fmt::format("one of user {}", user);
    return observe::refuse("an IPC handle's exporter: expected a process of user {}, found {}", own,
                           found);
}

// Connects to the socket of the exporter that `handle` names, which must be of the same user. Waits
// up to `left` nanoseconds, and subtracts the time taken. EMM_E_BUSY: the exporter had no room for
// one more connection.
emm_status reach(const emm_ipc_handle &handle, int64_t &left, observe::File &ret_socket) {
    observe::File asking(
        observe::make_own([] { return socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0); }), true);
    if (!asking) {
        return observe::fail(EMM_E_OUT_OF_HOST_MEMORY, 0, "no socket to reach an exporter: {}",
                             std::strerror(errno));
    }
    const auto address = sockets::address_of(socket_name(handle.nonce));
    const int error = sockets::connect_within(asking.number(), address, left);
    EMM_TRY(error == 0 ? check_user(asking.number()) : fail_reaching(handle, error));
    ret_socket = std::move(asking);
    return EMM_OK;
}

} // namespace

// The reply is checked before it is used: the exporter may be any program of this user.
emm_status Connection::check(const Reply &reply, sockets::Descriptors &descriptors) const {
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
        return refuse("the export that the handle describes",
                      fmt::format("{} bytes in {} parts", reply.bytes, reply.total));
    }
    if (descriptors.count() == 0) {
        return observe::fail(EMM_E_OUT_OF_HOST_MEMORY, 0,
                             "this process has no file descriptor left to open an export");
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

// If an exporter hangs up, it may just have no room. If it has ended, connecting fails.
emm_status Connection::fail_exchange(int error, bool &ret_again) const {
    if (error == 0 || error == EPIPE || error == ECONNRESET || error == ENOTCONN) {
        ret_again = true;
        return fail_busy("hangs up");
    }
    return fail_busy(error == EAGAIN || error == EINTR ? "does not answer" : std::strerror(error));
}

emm_status Connection::exchange(int socket, const Messages &messages,
                                sockets::Descriptors &descriptors, bool &ret_again) {
    if (!sockets::send_message(socket, messages.request, messages.request_size, nullptr, 0)) {
        return fail_exchange(errno, ret_again);
    }
    const long got =
        sockets::receive_within(socket, messages.reply, messages.reply_size, descriptors, left_);
    if (got < 0 || (got == 0 && descriptors.count() == 0)) {
        return fail_exchange(got == 0 ? 0 : errno, ret_again);
    }
    if (got != static_cast<long>(messages.reply_size)) {
        std::memset(messages.reply, 0, messages.reply_size);
    }
    return EMM_OK;
}

emm_status Connection::converse(const Messages &messages, sockets::Descriptors &descriptors) {
    for (;;) {
        observe::File socket;
        bool again = false;
        emm_status status = reach(handle_, left_, socket);
        if (status == EMM_OK) {
            status = exchange(socket.number(), messages, descriptors, again);
        }
        if (!again || left_ <= 0) {
            return status;
        }
        constexpr int64_t pause = 1'000'000;
        usleep(pause / 1000);
        left_ -= pause;
    }
}

emm_status Connection::ask(uint64_t first, Reply *ret_reply,
                           sockets::Descriptors &ret_descriptors) {
    Request request = {};
    request.magic = wire_magic;
    request.most = parts_at_once;
    std::memcpy(request.nonce, handle_.nonce, sizeof request.nonce);
    request.generation = handle_.generation;
    std::memcpy(request.handle, handle_.handle, sizeof request.handle);
    request.first = first;
    EMM_TRY(converse({&request, sizeof request, ret_reply, sizeof *ret_reply}, ret_descriptors));
    EMM_TRY(check(*ret_reply, ret_descriptors));
    ret_reply->count = ret_descriptors.count(); // fewer, if this process had no room for more
    left_ = std::min(answer_timeout, left_ + for_a_part * ret_reply->count);
    return EMM_OK;
}

emm_status Connection::ask_for_handle(const emm_ipc_name &name, emm_ipc_handle *ret_handle) {
    const HandleRequest request = {handle_magic, 0, name};
    HandleReply reply = {};
    sockets::Descriptors unwanted;
    EMM_TRY(converse({&request, sizeof request, &reply, sizeof reply}, unwanted));
    EMM_TRY(check(reply));
    *ret_handle = reply.handle;
    return EMM_OK;
}

emm_status check_liveness(const emm_ipc_handle &handle) {
    if (sight_of(handle.flags, network_namespace()) == Sight::elsewhere) {
        return EMM_OK;
    }
    emm_ipc_handle found = {};
    return Connection(handle, 0).ask_for_handle(write_name(handle), &found);
}

emm_status find_handle(const emm_ipc_name &name, emm_ipc_handle *ret_handle) {
    EMM_TRY(check_name(name));
    const emm_ipc_handle known = handle_of(name);
    emm_ipc_handle found = {};
    EMM_TRY(Connection(known, 0).ask_for_handle(name, &found));
    EMM_TRY(check_handle(found));
    if (!is_same(write_name(found).bytes, name.bytes)) {
        return observe::refuse("the exporter's IPC handle does not match the export's name");
    }
    *ret_handle = found;
    return EMM_OK;
}

} // namespace emm::sharing

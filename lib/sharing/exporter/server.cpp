// The thread that hands out descriptors, and handles to importers that know their names.
//
// There is one in a process, from its first export on, and one listening socket (sockets/server.h).
// Both stay until the process ends: another export may come at any time, and a thread that waits
// costs nothing. No thread joins it, and no exit handler stops it. A forked child has neither the
// thread nor, once the fork handler has run, the socket. An importer whose connection closes
// unanswered tries again.
#include "sharing/exporter/server.h"

#include "observe/error.h"
#include "sharing/exporter/served_exports.h"
#include "sharing/handle/origin.h"
#include "sharing/handle/wire.h"
#include "sockets/message.h"
#include "sockets/server.h"
#include "sockets/socket.h"

#include <atomic>
#include <cerrno>
#include <cstring>
#include <mutex>
#include <new>
#include <string>
#include <unistd.h>

namespace emm::sharing {
namespace {

constexpr int backlog = 64;

constinit std::atomic<FindExport> find_by_name{nullptr};

void answer_with_parts(int socket, const Request &request) noexcept {
    const ServedReply batch(request);
    const Reply &reply = batch.reply();
    sockets::send_message(socket, &reply, sizeof reply, batch.descriptors(), reply.count);
}

void answer_with_handle(int socket, const HandleRequest &request) noexcept {
    HandleReply reply = {};
    reply.magic = handle_magic;
    reply.status = find_by_name.load()(request.name, &reply.handle) ? EMM_OK : EMM_E_NOT_OWNED;
    sockets::send_message(socket, &reply, sizeof reply, nullptr, 0);
}

// False: the peer has said nothing yet.
bool answer(int socket) noexcept {
    union {
        Request parts;
        HandleRequest handle;
    } request;
    sockets::Descriptors unwanted;
    const long got = sockets::receive_message(socket, &request, sizeof request, unwanted);
    if (got < 0 && (errno == EAGAIN || errno == EINTR)) {
        return false;
    }
    switch (what_is_asked(&request, got)) {
    case Asked::parts:
        answer_with_parts(socket, request.parts);
        break;
    case Asked::handle:
        answer_with_handle(socket, request.handle);
        break;
    case Asked::nothing:
        break;
    }
    return true;
}

emm_status fail_serving(const char *what, const char *why) noexcept {
    return observe::fail(EMM_E_OUT_OF_HOST_MEMORY, 0, "no {} to serve exports with: {}", what, why);
}

constinit sockets::Listener listener;
constinit sockets::Server server(listener, answer_timeout, &answer);

emm_status listen() {
    uint8_t nonce[8];
    EMM_TRY(get_nonce(nonce));
    const int error = listener.open(socket_name(nonce), backlog);
    return error == 0 ? EMM_OK : fail_serving("socket", std::strerror(error));
}

// Can be called again after a failure. A moment passes where the process may have no descriptor.
emm_status start_once() {
    static std::mutex mutex;
    static bool started = false;
    const std::lock_guard lock(mutex);
    if (started) {
        return listener.number() >= 0 ? EMM_OK
                                      : fail_serving("socket", "the program has closed it");
    }
    EMM_TRY(listen());
    started = sockets::start_thread("emm-ipc", [] {
        while (listener.number() >= 0) {
            server.run();
            usleep(10'000);
        }
    });
    if (!started) {
        listener.close();
        return fail_serving("thread", "the system gives no thread");
    }
    return EMM_OK;
}

} // namespace

emm_status start_serving(FindExport find) noexcept {
    find_by_name.store(find);
    try {
        return start_once();
    } catch (const std::bad_alloc &) {
        return fail_serving("memory", "the process's socket cannot be made");
    }
}

} // namespace emm::sharing

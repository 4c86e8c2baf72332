// Processes without a right to this process's descriptors and handles: another user, a process that
// does not know the handle, and silent connections.
#include "sharing/handle/stamp.h"
#include "sharing/handle/wire.h"
#include "sockets/user.h"

#include <emm/emm.h>

#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <poll.h>
#include <random>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>
#include <vector>

using namespace emm::sharing;
using namespace emm::sockets;

namespace {

constexpr size_t bytes = 3 << 20;

#define CHECK(condition)                                                                           \
    if (!(condition)) {                                                                            \
        std::fprintf(stderr, "%d: %s:%d: not so: %s (%s)\n", getpid(), __FILE__, __LINE__,         \
                     #condition, emm_last_error()->text);                                          \
        std::_Exit(1);                                                                             \
    }

Request request_for(const emm_ipc_handle &handle) {
    Request request = {};
    request.magic = wire_magic;
    request.most = parts_at_once;
    std::memcpy(request.nonce, handle.nonce, sizeof request.nonce);
    request.generation = handle.generation;
    std::memcpy(request.handle, handle.handle, sizeof request.handle);
    return request;
}

int reach_mark(int socket, const emm_ipc_handle &handle) {
    int64_t left = answer_timeout;
    return connect_within(socket, address_of(socket_name(handle.nonce)), left);
}

int connect_to_exporter(const emm_ipc_handle &handle) {
    const int made = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0);
    CHECK(made >= 0 && reach_mark(made, handle) == 0);
    return made;
}

// The number of descriptors that came; -1: the exporter hung up. A connection serves one request.
int ask(int socket, const Request &request) {
    Reply reply = {};
    Descriptors descriptors;
    pollfd waiting = {socket, POLLIN, 0};
    if (!send_message(socket, &request, sizeof request, nullptr, 0)) {
        return -1;
    }
    CHECK(poll(&waiting, 1, 30000) == 1);
    const long got = receive_message(socket, &reply, sizeof reply, descriptors);
    close(socket);
    return got <= 0 ? -1 : static_cast<int>(descriptors.count());
}

// The exporter's answer to a process that asks for the handle of a name; -1: it hangs up.
int ask_for_handle(const emm_ipc_handle &handle, const emm_ipc_name &name, uint32_t magic) {
    const HandleRequest request = {magic, 0, name};
    HandleReply reply = {};
    const int socket = connect_to_exporter(handle);
    pollfd waiting = {socket, POLLIN, 0};
    CHECK(send_message(socket, &request, sizeof request, nullptr, 0));
    CHECK(poll(&waiting, 1, 30000) == 1);
    const ssize_t got = recv(socket, &reply, sizeof reply, 0);
    close(socket);
    if (got <= 0) {
        return -1;
    }
    const emm_ipc_handle none = {};
    const emm_ipc_handle &expected = reply.status == EMM_OK ? handle : none;
    CHECK(got == sizeof reply && std::memcmp(&reply.handle, &expected, sizeof expected) == 0);
    return reply.status == EMM_OK ? 1 : 0;
}

void expect_for_guesser(const emm_ipc_handle &handle) {
    const emm_ipc_name good = write_name(handle);
    CHECK(ask_for_handle(handle, good, handle_magic) == 1);
    CHECK(ask_for_handle(handle, good, wire_magic) == -1);
    for (size_t i = 0; i < sizeof good.bytes; ++i) {
        emm_ipc_name bad = good;
        bad.bytes[i] ^= 0x40;
        CHECK(ask_for_handle(handle, bad, handle_magic) == 0);
    }
    std::mt19937 random(7);
    for (int i = 0; i < 100; ++i) { // the export is right, and its holders' knowledge is not
        emm_ipc_handle bad = handle;
        for (uint8_t &byte : bad.handle) {
            byte = static_cast<uint8_t>(random());
        }
        CHECK(ask_for_handle(handle, write_name(bad), handle_magic) == 0);
    }
}

void expect_for_stranger(const emm_ipc_handle &handle) {
    const Request good = request_for(handle);
    const auto answer_to = [&](const Request &request) {
        return ask(connect_to_exporter(handle), request);
    };
    CHECK(answer_to(good) == 2);
    for (size_t i = 0; i < sizeof good.handle; ++i) {
        Request bad = good;
        bad.handle[i] ^= 0x40;
        CHECK(answer_to(bad) == 0);
    }
    Request bad = good;
    ++bad.nonce[3];
    CHECK(answer_to(bad) == 0);
    bad = good;
    ++bad.generation;
    CHECK(answer_to(bad) == 0);
    bad = good;
    bad.generation = 0;
    CHECK(answer_to(bad) == 0);
    for (const uint64_t first : {UINT64_C(2), UINT64_MAX}) {
        bad = good;
        bad.first = first;
        CHECK(answer_to(bad) == 0);
    }
    std::mt19937 random(7);
    for (int i = 0; i < 100; ++i) {
        auto *const at = reinterpret_cast<unsigned char *>(&bad);
        for (size_t k = sizeof bad.magic; k < sizeof bad; ++k) {
            at[k] = static_cast<unsigned char>(random());
        }
        CHECK(answer_to(bad) == 0);
    }
    bad.magic = 0;
    CHECK(answer_to(bad) == -1);
    expect_for_guesser(handle);
}

// More connections than the exporter keeps, all silent.
void expect_beside_silent(const emm_ipc_handle &handle) {
    std::vector<int> silent(50);
    for (int &each : silent) {
        each = connect_to_exporter(handle);
    }
    CHECK(ask(connect_to_exporter(handle), request_for(handle)) == 2);
    for (const int each : silent) {
        close(each);
    }
}

void expect_as_other_user(const emm_ipc_handle &handle) {
    constexpr uid_t other_user = 65534;
    CHECK(setresgid(other_user, other_user, other_user) == 0 &&
          setresuid(other_user, other_user, other_user) == 0);
    const int asking = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0);
    uint32_t user = other_user;
    const int error = reach_mark(asking, handle);
    CHECK(error == 0 && !is_own_user(asking, &user) && user == 0);
    CHECK(ask(asking, request_for(handle)) == -1);
    emm_ipc_handle found = {};
    const emm_ipc_name name = write_name(handle);
    CHECK(emm_ipc_name_to_handle(&name, &found) == EMM_E_INVALID_VALUE);
    CHECK(std::strstr(emm_last_error()->text, "expected a process of user"));
}

// Runs in a process without a driver, so that it may be forked.
template <class What> pid_t start(int (&ends)[2], What what) {
    CHECK(socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, ends) == 0);
    const pid_t child = fork();
    if (child == 0) {
        emm_ipc_handle handle;
        close(ends[0]);
        CHECK(recv(ends[1], &handle, sizeof handle, 0) == sizeof handle);
        what(handle);
        std::_Exit(0);
    }
    close(ends[1]);
    return child;
}

void finish(pid_t child, int socket, const emm_ipc_handle &handle) {
    int status = -1;
    CHECK(send(socket, &handle, sizeof handle, MSG_NOSIGNAL) == sizeof handle);
    CHECK(waitpid(child, &status, 0) == child && status == 0);
    close(socket);
}

} // namespace

int main() {
    int guess[2], silent[2], other_user[2];
    const bool is_root = geteuid() == 0;
    const pid_t guessing = start(guess, expect_for_stranger);
    const pid_t saying_nothing = start(silent, expect_beside_silent);
    const pid_t as_other_user = is_root ? start(other_user, expect_as_other_user) : 0;
    emm_context *context = nullptr;
    emm_memory *memory = nullptr;
    emm_ipc_handle handle = {};
    CHECK(emm_context_for_device(0, &context) == EMM_OK);
    CHECK(emm_memory_alloc(context, bytes, EMM_STREAM_LEGACY, &memory) == EMM_OK);
    CHECK(emm_memory_export(memory, &handle) == EMM_OK && handle.kind == EMM_IPC_FILE_DESCRIPTOR);
    finish(guessing, guess[0], handle);
    finish(saying_nothing, silent[0], handle);
    if (is_root) {
        finish(as_other_user, other_user[0], handle);
    } else {
        std::printf("skipped: another user is refused (only root can become one)\n");
    }
    CHECK(emm_release_ipc_handle(context, &handle) == EMM_OK);
    CHECK(emm_memory_release(memory) == EMM_OK);
    return 0;
}

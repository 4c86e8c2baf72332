// Behaviour: names of exports, the short form of their handles.

#include "catch.h"
#include "sharing/handle/stamp.h"
#include "sharing/handle/wire.h"

#include <emm/emm.h>

#include <cstddef>
#include <cstring>
#include <filesystem>
#include <functional>
#include <iterator>
#include <poll.h>
#include <string>
#include <sys/socket.h>
#include <thread>
#include <unistd.h>

using namespace emm::sharing;
using namespace emm::sockets;

namespace {

template <class Change> emm_ipc_handle changed(emm_ipc_handle handle, Change change) {
    change(handle);
    handle.checksum = checksum_of(&handle, offsetof(emm_ipc_handle, checksum));
    return handle;
}

// A handle as another process would make it; the process does not exist.
emm_ipc_handle made_up() {
    return changed({}, [](emm_ipc_handle &made) {
        made.magic = 0x696d6d65;
        made.version = 3;
        made.kind = EMM_IPC_LEGACY;
        made.flags = network_namespace();
        for (size_t i = 0; i < sizeof made.handle; ++i) {
            made.handle[i] = static_cast<uint8_t>(3 * i + 1);
        }
        made.size = made.exported_size = 4096;
        made.generation = UINT64_C(0x8000000000000001);
        std::memset(made.nonce, 0x5a, sizeof made.nonce);
        const pid_t process = getpid(); // tests run side by side
        std::memcpy(made.nonce, &process, sizeof process);
    });
}

emm_ipc_name name_of(const emm_ipc_handle &handle) {
    emm_ipc_name name;
    REQUIRE(emm_ipc_handle_to_name(&handle, &name) == EMM_OK);
    emm_ipc_name by_older_function;
    REQUIRE(emm_ipc_name_of(&handle, &by_older_function) == EMM_OK);
    REQUIRE(std::memcmp(&name, &by_older_function, sizeof name) == 0);
    return name;
}

// The first step of opening a name, and the sentence if it is refused.
emm_status find(const emm_ipc_name &name) {
    emm_ipc_handle handle = {};
    const emm_status status = emm_ipc_name_to_handle(&name, &handle);
    CHECK((status == EMM_OK || handle.magic == 0)); // outputs are untouched on failure
    return status;
}

std::string said() {
    return emm_last_error()->text;
}

size_t descriptors() {
    return std::distance(std::filesystem::directory_iterator("/proc/self/fd"), {});
}

// The exporter of a made-up handle, at its liveness socket: for each request it sends the reply
// that `answer` makes of a true one.
class Exporter {
public:
    using Answer = std::function<void(int peer, const HandleRequest &request)>;

    Exporter(const emm_ipc_handle &handle, Answer answer) : answer_(std::move(answer)) {
        const Address address = address_of(socket_name(handle.nonce));
        REQUIRE(listening_ >= 0);
        REQUIRE(bind(listening_, address.get(), address.length) == 0);
        REQUIRE(listen(listening_, 8) == 0);
        REQUIRE(pipe(end_) == 0);
        thread_ = std::thread([this] { serve(); });
    }
    ~Exporter() {
        close(end_[1]);
        thread_.join();
        close(end_[0]);
        close(listening_);
    }
    Exporter(const Exporter &) = delete;
    Exporter &operator=(const Exporter &) = delete;

private:
    void serve() {
        pollfd waiting[] = {{listening_, POLLIN, 0}, {end_[0], POLLIN, 0}};
        while (poll(waiting, 2, -1) > 0 && waiting[1].revents == 0) {
            const int peer = accept(listening_, nullptr, nullptr);
            HandleRequest request = {};
            if (recv(peer, &request, sizeof request, 0) == sizeof request) {
                answer_(peer, request);
            }
            close(peer);
        }
    }

    const Answer answer_;
    const int listening_ = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0);
    int end_[2];
    std::thread thread_;
};

Exporter::Answer say(HandleReply reply, size_t size = sizeof(HandleReply)) {
    return [=](int peer, const HandleRequest &) { send(peer, &reply, size, MSG_NOSIGNAL); };
}

HandleReply true_reply() {
    return {handle_magic, EMM_OK, made_up()};
}

} // namespace

TEST_CASE("a name is told from other bytes by its first seven") {
    emm_ipc_name name = name_of(made_up());
    CHECK(emm_ipc_is_name(&name) == 1);
    for (size_t i = 0; i < sizeof name.bytes; ++i) {
        emm_ipc_name other = name;
        other.bytes[i] ^= 1;
        CHECK(emm_ipc_is_name(&other) == (i < 7 ? 0 : 1));
    }
    CHECK(emm_ipc_is_name(nullptr) == 0);
    CHECK(find(emm_ipc_name{}) == EMM_E_INVALID_VALUE);
    CHECK_THAT(said(), ContainsSubstring("expected one that begins with 'emm-ipc'"));
}

TEST_CASE("a name of which any byte has changed is refused, and no process is asked") {
    const emm_ipc_name name = name_of(made_up());
    CHECK(find(name) == EMM_E_NOT_OWNED); // no such exporter
    for (const uint8_t change : {0x01, 0x80, 0xff}) {
        for (size_t i = 0; i < sizeof name.bytes; ++i) {
            emm_ipc_name bad = name;
            bad.bytes[i] ^= change;
            CHECK(find(bad) == EMM_E_INVALID_VALUE);
            CHECK_THAT(said(), ContainsSubstring("of an export's name") ||
                                   ContainsSubstring("an export's name: expected"));
        }
    }
}

TEST_CASE("a handle of which any byte has changed has no name") {
    const emm_ipc_handle good = made_up();
    emm_ipc_name name = {};
    for (size_t i = 0; i < sizeof good; ++i) {
        emm_ipc_handle bad = good;
        reinterpret_cast<uint8_t *>(&bad)[i] ^= 0xff;
        CHECK(emm_ipc_handle_to_name(&bad, &name) == EMM_E_INVALID_VALUE);
    }
    const auto fabric = changed(good, [](auto &handle) { handle.kind = EMM_IPC_FABRIC; });
    CHECK(emm_ipc_handle_to_name(&fabric, &name) == EMM_E_NOT_SUPPORTED);
    CHECK(name.bytes[0] == 0);
    CHECK(emm_ipc_handle_to_name(nullptr, &name) == EMM_E_INVALID_VALUE);
    CHECK(emm_ipc_handle_to_name(&good, nullptr) == EMM_E_INVALID_VALUE);
    CHECK(emm_ipc_name_to_handle(nullptr, nullptr) == EMM_E_INVALID_VALUE);
    CHECK(emm_ipc_handle_from(nullptr, nullptr) == EMM_E_INVALID_VALUE);
}

TEST_CASE("handles that differ in what their holders know have different names") {
    const emm_ipc_name name = name_of(made_up());
    CHECK(is_same(name.bytes, name_of(made_up()).bytes));
    for (size_t i = 0; i < sizeof emm_ipc_handle::handle; ++i) {
        const auto other = changed(made_up(), [i](auto &handle) { handle.handle[i] ^= 4; });
        CHECK_FALSE(is_same(name.bytes, name_of(other).bytes));
    }
}

TEST_CASE("a name of this process is refused, and one of another network namespace") {
    const auto own = changed(made_up(), [](emm_ipc_handle &handle) {
        uint8_t nonce[8];
        REQUIRE(get_nonce(nonce) == EMM_OK);
        std::memcpy(handle.nonce, nonce, sizeof nonce);
    });
    CHECK(find(name_of(own)) == EMM_E_INVALID_VALUE);
    CHECK_THAT(said(), ContainsSubstring("exported by this process"));
    const auto elsewhere = changed(made_up(), [](auto &handle) { handle.flags ^= 1; });
    CHECK(find(name_of(elsewhere)) == EMM_E_NOT_SUPPORTED);
    CHECK_THAT(said(), ContainsSubstring("network namespace"));
}

TEST_CASE("the exporter is told the name, and what it answers is the handle") {
    const emm_ipc_handle handle = made_up();
    const emm_ipc_name name = name_of(handle);
    bool told = false;
    emm_ipc_handle found = {};
    {
        const Exporter exporter(handle, [&](int peer, const HandleRequest &request) {
            told = request.magic == handle_magic && is_same(request.name.bytes, name.bytes);
            say(true_reply())(peer, request);
        });
        REQUIRE(emm_ipc_name_to_handle(&name, &found) == EMM_OK);
    }
    CHECK(told);
    CHECK(std::memcmp(&found, &handle, sizeof found) == 0);
}

TEST_CASE("an exporter that answers anything but the name's handle is refused") {
    const emm_ipc_handle handle = made_up();
    const auto answers = [&](Exporter::Answer answer) {
        const size_t before = descriptors();
        emm_status status = EMM_OK;
        {
            const Exporter exporter(handle, std::move(answer));
            status = find(name_of(handle));
        }
        CHECK(descriptors() == before);
        return status;
    };
    const auto says = [&](auto change) {
        HandleReply reply = true_reply();
        change(reply);
        return answers(say(reply));
    };
    CHECK(answers(say(true_reply())) == EMM_OK);
    CHECK(says([](auto &reply) { reply.magic = wire_magic; }) == EMM_E_INVALID_VALUE);
    CHECK(says([](auto &reply) { reply.status = -12345; }) == EMM_E_INVALID_VALUE);
    CHECK(says([](auto &reply) { reply.status = 1; }) == EMM_E_INVALID_VALUE);
    CHECK(says([](auto &reply) { reply.status = EMM_E_NOT_OWNED; }) == EMM_E_NOT_OWNED);
    CHECK(says([](auto &reply) { reply.handle = {}; }) == EMM_E_INVALID_VALUE);
    for (size_t i = 0; i < sizeof handle; ++i) {
        CHECK(says([i](auto &reply) { reinterpret_cast<uint8_t *>(&reply.handle)[i] ^= 0x10; }) ==
              EMM_E_INVALID_VALUE);
    }
    // Whole handles, of other exports.
    const auto gives = [&](auto change) {
        return says([&](auto &reply) { reply.handle = changed(reply.handle, change); });
    };
    CHECK(gives([](auto &other) { ++other.generation; }) == EMM_E_INVALID_VALUE);
    CHECK(gives([](auto &other) { ++other.nonce[7]; }) == EMM_E_INVALID_VALUE);
    CHECK(gives([](auto &other) { ++other.handle[63]; }) == EMM_E_INVALID_VALUE);
    CHECK(gives([](auto &other) { ++other.flags; }) == EMM_E_INVALID_VALUE);
    CHECK_THAT(said(), ContainsSubstring("does not match the export's name"));
    CHECK(answers(say(true_reply(), 8)) == EMM_E_INVALID_VALUE);
    CHECK(answers([](int peer, const HandleRequest &) {
              const HandleReply reply = {handle_magic, EMM_E_NOT_OWNED, {}};
              const int unwanted[] = {peer, peer, peer};
              send_message(peer, &reply, sizeof reply, unwanted, 3);
          }) == EMM_E_NOT_OWNED);
}

TEST_CASE("an exporter that hangs up is asked again, and is busy in the end") {
    const emm_ipc_handle handle = made_up();
    int asked = 0;
    const auto answer_at = [&](int time) {
        asked = 0;
        return Exporter::Answer([&asked, time](int peer, const HandleRequest &request) {
            if (++asked == time) {
                say(true_reply())(peer, request);
            }
        });
    };
    {
        const Exporter exporter(handle, answer_at(3));
        CHECK(find(name_of(handle)) == EMM_OK);
    }
    CHECK(asked == 3);
    {
        const Exporter exporter(handle, answer_at(0));
        CHECK(find(name_of(handle)) == EMM_E_BUSY);
    }
    CHECK(asked > 3);
}

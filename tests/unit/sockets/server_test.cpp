#include "sockets/server.h"

#include "catch.h"

#include <atomic>
#include <poll.h>
#include <pthread.h>
#include <string>
#include <sys/resource.h>
#include <thread>
#include <unistd.h>
#include <vector>

using namespace emm::sockets;

namespace {

constinit Listener listener;

// Sends back the byte that came.
void answer(int socket, const void *request, long) noexcept {
    send(socket, request, 1, MSG_NOSIGNAL);
}

// A server on a thread of its own, which ends after its listener has closed.
class Running {
public:
    explicit Running(int64_t silence) : server_(listener, silence, &answer) {
        REQUIRE(listener.open(name_, 128) == 0);
        thread_ = std::thread([this] { server_.run(); });
    }
    ~Running() {
        connect(); // makes it look again, at the latest when this one was silent for too long
        listener.close();
        thread_.join();
    }
    int connect() const {
        const int made = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0);
        int64_t left = 10'000'000'000;
        REQUIRE(connect_within(made, address_of(name_), left) == 0);
        return made;
    }

private:
    const std::string name_ = "emm-test-server-" + std::to_string(getpid());
    Server server_;
    std::thread thread_;
};

bool is_hung_up(int socket) {
    pollfd waiting = {socket, POLLIN, 0};
    char byte;
    return poll(&waiting, 1, 10'000) == 1 && recv(socket, &byte, 1, MSG_DONTWAIT) == 0;
}

bool is_answered(int socket) {
    char byte = 'a';
    pollfd waiting = {socket, POLLIN, 0};
    return send(socket, &byte, 1, MSG_NOSIGNAL) == 1 && poll(&waiting, 1, 10'000) == 1 &&
           recv(socket, &byte, 1, MSG_DONTWAIT) == 1;
}

} // namespace

TEST_CASE("a silent peer gives its place to newer ones, and each that asks is answered") {
    const Running running(1'000'000'000);
    const int first = running.connect();
    std::vector<int> silent;
    for (int i = 0; i < 32; ++i) {
        silent.push_back(running.connect());
    }
    CHECK(is_hung_up(first));
    CHECK(is_answered(running.connect()));
    CHECK(is_answered(silent.back()));
    CHECK(is_hung_up(silent.back())); // one request each
}

TEST_CASE("the server closes the connection of a silent peer when its time is over") {
    const Running running(1'000'000);
    CHECK(is_hung_up(running.connect()));
}

TEST_CASE("a limit on descriptors that falls below the silent peers ends those, not the server") {
    const Running running(1'000'000'000);
    std::vector<int> silent;
    for (int i = 0; i < 20; ++i) {
        silent.push_back(running.connect());
    }
    const int asking = running.connect();
    REQUIRE(is_answered(running.connect())); // those before have their places
    rlimit limit;
    REQUIRE(getrlimit(RLIMIT_NOFILE, &limit) == 0);
    const rlimit few = {10, limit.rlim_max};
    REQUIRE(setrlimit(RLIMIT_NOFILE, &few) == 0);
    CHECK(is_answered(asking));
    CHECK(is_hung_up(silent[0]));
    REQUIRE(setrlimit(RLIMIT_NOFILE, &limit) == 0);
    CHECK(is_answered(running.connect()));
}

TEST_CASE("a thread that cannot be started is told of, and its body does not run") {
    pthread_attr_t before, huge;
    REQUIRE(pthread_getattr_default_np(&before) == 0);
    REQUIRE(pthread_attr_init(&huge) == 0);
    REQUIRE(pthread_attr_setstacksize(&huge, size_t{1} << 50) == 0); // more than can be mapped
    REQUIRE(pthread_setattr_default_np(&huge) == 0);
    std::atomic<int> runs{0};
    const auto body = [&] { runs++; };
    CHECK_FALSE(start_thread("emm-test", body));
    REQUIRE(pthread_setattr_default_np(&before) == 0);
    CHECK(start_thread("emm-test", body));
    while (runs == 0) {
        std::this_thread::yield();
    }
    CHECK(runs == 1);
}

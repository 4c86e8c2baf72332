#include "sockets/socket.h"

#include "catch.h"

#include <cerrno>
#include <fcntl.h>
#include <string>
#include <unistd.h>
#include <vector>

using namespace emm::sockets;

namespace {

std::string fresh_name() {
    static int count = 0;
    return "emm-test-" + std::to_string(getpid()) + "-" + std::to_string(++count);
}

} // namespace

TEST_CASE("a name is one process's at a time, and free again when its listener closes") {
    static Listener first, second;
    const std::string name = fresh_name();
    REQUIRE(first.open(name, 1) == 0);
    CHECK(first.number() >= 0);
    CHECK(second.open(name, 1) == EADDRINUSE);
    CHECK(second.number() == -1);
    first.close();
    CHECK(first.number() == -1);
    CHECK(second.open(name, 1) == 0);
}

TEST_CASE("a listener whose number a program has given to a file neither uses nor closes it") {
    static Listener listener;
    REQUIRE(listener.open(fresh_name(), 1) == 0);
    const int number = listener.number();
    const int file = open("/dev/null", O_RDONLY | O_CLOEXEC);
    REQUIRE(dup2(file, number) == number);
    CHECK(listener.number() == -1);
    listener.close();
    CHECK(fcntl(number, F_GETFD) >= 0);
    close(number);
    close(file);
}

TEST_CASE("connecting to a full queue ends when its time is over") {
    static Listener listener;
    const Address address = address_of(fresh_name());
    REQUIRE(listener.open({address.address.sun_path + 1, address.length - sizeof(sa_family_t) - 1},
                          0) == 0);
    int error = 0;
    int64_t left = 0;
    std::vector<int> waiting;
    for (int i = 0; i < 3 && error == 0; ++i) { // a queue of 0 holds one connection
        waiting.push_back(socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0));
        left = 20'000'000;
        error = connect_within(waiting.back(), address, left);
    }
    CHECK(error == EAGAIN);
    CHECK(left <= 0);
    for (const int each : waiting) {
        close(each);
    }
}

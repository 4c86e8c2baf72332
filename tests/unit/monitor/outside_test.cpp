#include "monitor/outside.h"

#include "catch.h"

#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

TEST_CASE("a process without standard input answers a request to pause") {
    int ends[2];
    REQUIRE(socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, ends) == 0);
    close(STDIN_FILENO);
    emm::monitor::answer_outside(ends[0], true, "keep 1000");
    pollfd waiting = {ends[1], POLLIN, 0};
    REQUIRE(poll(&waiting, 1, 60'000) == 1);
    std::string answer(4096, '\0');
    const ssize_t got = recv(ends[1], answer.data(), answer.size(), 0);
    REQUIRE(got > 0);
    CHECK_THAT(answer.substr(0, size_t(got)),
               ContainsSubstring("it was started without emm run --pausable"));
    close(ends[0]);
    close(ends[1]);
}

#include "monitor/neighbours.h"

#include "../driver/group_members.h"
#include "monitor/protocol.h"
#include "sockets/socket.h"

#include <fcntl.h>
#include <filesystem>
#include <iterator>
#include <unistd.h>
#include <utility>

using namespace emm::driver;
using emm::monitor::ask_own_group;

namespace {

constexpr uint64_t held = 32 * group_mib;

struct Group : Folder {
    ~Group() { group_of_process = nullptr; }
};

size_t descriptors() {
    const std::filesystem::directory_iterator all("/proc/self/fd");
    return size_t(std::distance(begin(all), end(all)));
}

// This process, and another member that holds memory and is stopped: a request to that member
// stays in the queue of its socket.
class BesideStopped {
public:
    BesideStopped() {
        group_of_process = &own_.file;
        REQUIRE(stopped_.share().cover(held));
        its().pid = uint64_t(getpid());
        its().random = 4711;
        const auto address = emm::sockets::address_of(emm::monitor::SocketName(its().pid, 4711));
        REQUIRE(bind(listening_, address.get(), address.length) == 0);
        REQUIRE(listen(listening_, 16) == 0);
    }

    ~BesideStopped() { die(); }
    BesideStopped(const BesideStopped &) = delete;
    BesideStopped &operator=(const BesideStopped &) = delete;

    SharedMember &its() { return own_.file.state().members[stopped_.file.member()]; }
    // Takes the requests from the queue, and answers each by closing its connection. An `emm top`
    // of another test may ask here too: that does not count.
    int requests() {
        int count = 0;
        for (int one = -1; (one = accept(listening_, nullptr, nullptr)) >= 0; close(one)) {
            emm::monitor::Request request = {};
            count += recv(one, &request, sizeof request, MSG_DONTWAIT) == sizeof request &&
                     request.kind == uint32_t(emm::monitor::RequestKind::trim);
        }
        return count;
    }
    void die() { close(std::exchange(listening_, -1)); }

private:
    Group group_;
    Member own_{group_.file()}, stopped_{group_.file()};
    int listening_ = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
};

} // namespace

TEST_CASE("a process of the group that has no socket any more is not waited for, and costs none") {
    const Group group;
    Member own(group.file()), other(group.file());
    REQUIRE(other.share().cover(held));
    other.file.state().members[other.file.member()].random = 4711; // no process listens there
    group_of_process = &own.file;
    const size_t before = descriptors();
    CHECK_FALSE(ask_own_group());
    CHECK(descriptors() == before);
}

TEST_CASE("a member that has not answered is not asked again until it has") {
    BesideStopped stopped;
    for (int round = 0; round < 2; ++round) {
        CHECK_FALSE(ask_own_group());
        const size_t after_one = descriptors();
        CHECK_FALSE(ask_own_group());
        CHECK_FALSE(ask_own_group());
        CHECK(descriptors() == after_one);
        CHECK(stopped.requests() == 1);
    }
}

TEST_CASE(
    "a request to a member that has ended is forgotten, and so is one to a slot's last owner") {
    BesideStopped stopped;
    CHECK_FALSE(ask_own_group());
    const size_t after_one = descriptors();
    ++stopped.its().ticket;
    CHECK_FALSE(ask_own_group());
    CHECK(descriptors() == after_one);
    CHECK(stopped.requests() == 2);
    stopped.die();
    CHECK_FALSE(ask_own_group());
    CHECK(descriptors() == after_one - 2); // the listening socket, and the request's
}

TEST_CASE("a file of the program at the number of an unanswered request stays open") {
    BesideStopped stopped;
    const int number = dup(STDIN_FILENO);
    close(number); // the next one
    CHECK_FALSE(ask_own_group());
    REQUIRE(dup2(STDIN_FILENO, number) == number);
    CHECK_FALSE(ask_own_group());
    CHECK(fcntl(number, F_GETFD) == 0);
    CHECK(stopped.requests() == 2);
    close(number);
}

// Behaviour: the state of a child after a fork.
#include "observe/descriptors.h"
#include "observe/process.h"

#include "catch.h"

#include <atomic>
#include <cerrno>
#include <functional>
#include <sys/wait.h>
#include <thread>
#include <unistd.h>

using namespace emm::observe;

namespace {

// Whether `check` holds in a child.
bool holds_in_child(const std::function<bool()> &check) {
    const pid_t child = fork();
    if (child == 0) {
        _exit(check() ? 0 : 1);
    }
    int status = 0;
    waitpid(child, &status, 0);
    return WIFEXITED(status) && WEXITSTATUS(status) == 0;
}

bool is_open(int descriptor) {
    char none;
    return write(descriptor, &none, 0) == 0;
}

} // namespace

TEST_CASE("a child is refused if a driver was loaded or a call under way, and goes on otherwise") {
    CHECK(state_of_child(0) == 0);
    CHECK(state_of_child(process_shut_down) == process_shut_down);
    CHECK(state_of_child(1) == process_forked);
    CHECK(state_of_child(process_shut_down | 3) == process_forked);
    CHECK(state_of_child(process_has_driver) == process_forked);
    CHECK(state_of_child(process_has_driver | process_shut_down | 7) == process_forked);
    CHECK(state_of_child(process_forked) == process_forked); // a child's child
}

TEST_CASE("a child that was forked within a call is refused, and its parent is not") {
    {
        const ProcessCall call;
        CHECK(holds_in_child([] { return is_forked_child() && !ProcessCall().entered(); }));
        CHECK_FALSE(is_forked_child());
    }
    CHECK(holds_in_child([] { return !is_forked_child(); }));
    CHECK(process_state.load() == 0);
}

TEST_CASE("a child leaves to its parent the descriptors that were noted, and no others") {
    int noted[2], forgotten[2];
    REQUIRE(pipe(noted) == 0);
    REQUIRE(pipe(forgotten) == 0);
    REQUIRE(own(noted[1]));
    CHECK(holds_in_child([&] { return is_open(noted[1]); })); // a child that goes on
    process_state.fetch_or(process_has_driver);
    CHECK(holds_in_child([&] { return !is_open(noted[1]) && is_open(forgotten[1]); }));
    forget_and_close(noted[1]);
    REQUIRE(dup2(forgotten[1], noted[1]) == noted[1]); // the number is another descriptor's now
    CHECK(holds_in_child([&] { return is_open(noted[1]); }));
}

TEST_CASE("a fork waits while a descriptor is made, but not for ever") {
    std::atomic<bool> held{false}, over{false};
    std::thread other([&] {
        const NoFork making;
        held = true;
        while (!over) {
            std::this_thread::yield();
        }
    });
    while (!held) {
        std::this_thread::yield();
    }
    CHECK(holds_in_child([] {
        const NoFork again; // including locks of other threads
        return true;
    }));
    over = true;
    other.join();
}

TEST_CASE("a thread may fork while it makes a descriptor, and make one within another") {
    const NoFork making;
    int ends[2];
    REQUIRE(pipe(ends) == 0);
    REQUIRE(own(ends[0]));
    forget_and_close(ends[0]);
    CHECK(holds_in_child([] {
        const NoFork again;
        return true;
    }));
}

TEST_CASE("a descriptor that cannot be noted is not made") {
    CHECK_FALSE(own(-1));
    CHECK_FALSE(own(1 << 30));
    errno = 0;
    CHECK(make_own([] {
              errno = EMFILE;
              return -1;
          }) == -1);
    CHECK(errno == EMFILE);
}

#include "hold.h"

#include "catch.h"

#include <chrono>
#include <functional>
#include <mutex>
#include <signal.h>
#include <sys/wait.h>
#include <thread>
#include <unistd.h>
#include <vector>

using namespace emm::run;

namespace {

constexpr int64_t brief = 20'000'000, long_enough = 60'000'000'000; // nanoseconds

void sleep_a_moment() {
    std::this_thread::sleep_for(std::chrono::milliseconds(20));
}

// Calls as a wrapper calls the function behind it. Gives 0, or the CUresult of a refusal.
int call(const std::function<void()> &behind = [] {}) {
    if (hold::Place *const place = hold::enter()) {
        behind();
        hold::unmark(*place);
        return 0;
    }
    const hold::Call otherwise = hold::enter_otherwise();
    if (otherwise.refused == 0) {
        behind();
    }
    if (otherwise.place) {
        hold::unmark(*otherwise.place);
    }
    return otherwise.refused;
}

// Makes the calling thread the one that pauses.
class Pauser {
public:
    Pauser() {
        static const bool started = hold::start();
        REQUIRE(started);
        REQUIRE(hold::calls.begin_own());
    }
    ~Pauser() {
        hold::calls.open();
        hold::calls.end_own();
    }
};

// A thread within a call, until it is told to leave.
class Inside {
public:
    Inside()
        : thread_([this] {
              call([this] {
                  is_inside_ = true;
                  while (!leaves_) {
                      std::this_thread::yield();
                  }
              });
          }) {
        while (!is_inside_) {
            std::this_thread::yield();
        }
    }
    ~Inside() {
        leaves_ = true;
        thread_.join();
    }
    void leave() { leaves_ = true; }

private:
    std::atomic<bool> is_inside_{false}, leaves_{false};
    std::thread thread_;
};

// A thread that makes one call.
class Caller {
public:
    Caller() : thread_([this] { result_ = call(); }) {}
    ~Caller() {
        if (thread_.joinable()) {
            thread_.join();
        }
    }
    bool is_back() const { return result_ != -1; }
    int result() {
        thread_.join();
        return result_;
    }

private:
    std::atomic<int> result_{-1};
    std::thread thread_;
};

} // namespace

TEST_CASE("a call that has begun is waited for, and one that begins later is held") {
    const Pauser pauser;
    Inside inside;
    std::thread leaves([&] {
        sleep_a_moment();
        inside.leave();
    });
    CHECK(hold::calls.close(long_enough));
    leaves.join();
    Caller held;
    sleep_a_moment();
    CHECK_FALSE(held.is_back());
    hold::calls.open();
    CHECK(held.result() == 0);
}

TEST_CASE("a call that is spared is not held") {
    static std::atomic<bool> is_spared{true};
    const Pauser pauser;
    hold::calls.spare([] { return is_spared.load(); });
    REQUIRE(hold::calls.close(long_enough));
    CHECK(Caller().result() == 0);
    is_spared = false;
    Caller held;
    sleep_a_moment();
    CHECK_FALSE(held.is_back());
    hold::calls.open();
    CHECK(held.result() == 0);
    hold::calls.spare(nullptr);
}

TEST_CASE("a call that does not end in time ends the wait, and nothing is held") {
    const Pauser pauser;
    Inside inside;
    Caller early;
    CHECK(early.result() == 0);
    CHECK_FALSE(hold::calls.close(brief));
    Caller late;
    CHECK(late.result() == 0);
}

TEST_CASE("the pausing thread's calls, and calls within another, are not held") {
    const Pauser pauser;
    REQUIRE(hold::calls.close(long_enough));
    CHECK(call() == 0);
    CHECK(call([] { CHECK(call() == 0); }) == 0);
}

TEST_CASE("a thread that was ended within a call is not waited for") {
    const Pauser pauser;
    std::thread([] { hold::enter() ? void() : void(hold::enter_otherwise()); }).join();
    CHECK(hold::calls.close(long_enough));
}

TEST_CASE("a thread that is held may hold a further thread's place after its end") {
    const Pauser pauser;
    for (int i = 0; i < 200; i++) {
        std::thread([] { CHECK(call() == 0); }).join();
    }
    REQUIRE(hold::calls.close(long_enough));
    Caller held;
    sleep_a_moment();
    CHECK_FALSE(held.is_back());
    hold::calls.open();
}

TEST_CASE("a thread that is held stays so after a signal") {
    struct sigaction action = {}, before = {};
    static std::atomic<int> handled;
    handled = 0;
    action.sa_handler = [](int) { handled++; };
    REQUIRE(sigaction(SIGUSR1, &action, &before) == 0);
    const Pauser pauser;
    REQUIRE(hold::calls.close(long_enough));
    std::atomic<bool> is_back{false};
    std::thread held([&] {
        call();
        is_back = true;
    });
    for (int i = 1; i <= 3; i++) {
        sleep_a_moment();
        pthread_kill(held.native_handle(), SIGUSR1);
        while (handled != i) {
            std::this_thread::yield();
        }
    }
    sleep_a_moment();
    CHECK_FALSE(is_back);
    hold::calls.open();
    held.join();
    sigaction(SIGUSR1, &before, nullptr);
}

TEST_CASE("no thread is within a call while calls are held") {
    const Pauser pauser;
    std::atomic<bool> ends{false};
    std::atomic<long> calls{0};
    long plain = 0; // each call changes it with the lock held, the pausing thread without
    std::mutex mutex;
    std::vector<std::thread> threads;
    for (int i = 0; i < 4; i++) {
        threads.emplace_back([&] {
            while (!ends) {
                call([&] {
                    const std::lock_guard lock(mutex);
                    plain++;
                });
                calls++;
            }
        });
    }
    for (int i = 0; i < 200; i++) {
        REQUIRE(hold::calls.close(long_enough));
        const long before = plain;
        plain = before + 1;
        std::this_thread::yield();
        REQUIRE(plain == before + 1);
        hold::calls.open();
        for (const long seen = calls; calls == seen;) {
            std::this_thread::yield();
        }
    }
    ends = true;
    for (std::thread &thread : threads) {
        thread.join();
    }
    CHECK(plain == calls + 200);
}

TEST_CASE("a child that is forked while calls are held is not held") {
    const Pauser pauser;
    REQUIRE(hold::calls.close(long_enough));
    const pid_t child = fork();
    if (child == 0) {
        hold::calls.end_own();
        _exit(call());
    }
    int status = -1;
    REQUIRE(waitpid(child, &status, 0) == child);
    CHECK(status == 0);
}

// In a child, because the hold does not begin again.
TEST_CASE("a pause that comes while the process ends is refused, and holds nothing") {
    const Pauser pauser;
    const pid_t child = fork();
    if (child == 0) {
        hold::calls.end();
        const bool is_closed = hold::calls.close(long_enough);
        hold::calls.end_own();
        _exit(is_closed || hold::state.load() != hold::State::open ? 1 : call());
    }
    int status = -1;
    REQUIRE(waitpid(child, &status, 0) == child);
    CHECK(status == 0);
}

// The last case: the state can no longer change.
TEST_CASE("calls that are held when the process ends fail") {
    const Pauser pauser;
    REQUIRE(hold::calls.close(long_enough));
    Caller held;
    sleep_a_moment();
    hold::calls.end();
    CHECK(held.result() == 4); // CUDA_ERROR_DEINITIALIZED
    Caller late;
    CHECK(late.result() == 4);
}

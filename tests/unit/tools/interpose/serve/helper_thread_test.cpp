#include "serve/helper_thread.h"

#include "catch.h"
#include "parts/threads.h"

#include <atomic>
#include <future>
#include <pthread.h>
#include <thread>

using namespace emm::run;

namespace {

constexpr std::chrono::hours long_time{1};
constexpr std::chrono::milliseconds short_time{10};

std::mutex outer_mutex;
std::atomic<bool> is_held{false};
std::atomic<int> released{0}; // the value that the lock was released with

int take() {
    outer_mutex.lock();
    is_held = true;
    return 7;
}

void release(int taken) {
    released = taken;
    is_held = false;
    outer_mutex.unlock();
}

int end_thread() {
    pthread_exit(nullptr);
}

// Never destroyed: its thread may be about to end when a test does.
HelperThread &helper(std::chrono::milliseconds at_most,
                     const OuterLock &outer = {&take, &release}) {
    static auto &all = *new std::vector<HelperThread *>;
    all.push_back(new HelperThread(outer, at_most));
    return *all.back();
}

// Runs until the earlier obstacle is gone.
void run_in_the_end(HelperThread &thread) {
    std::atomic<bool> has_run{false};
    while (!has_run) {
        thread.run([&] { has_run = true; });
    }
}

} // namespace

TEST_CASE("work is done with the lock held, and waited for") {
    bool held = false;
    CHECK(helper(long_time).run([&] { held = is_held; }));
    CHECK(held);
    CHECK(released == 7);
    CHECK_FALSE(is_held);
}

TEST_CASE("each of several callers has its work done") {
    HelperThread &thread = helper(long_time);
    std::atomic<int> done{0}, began{0};
    in_threads(8, [&](size_t) { began += thread.run([&] { done++; }); });
    CHECK(done == 8);
    CHECK(began == 8);
}

TEST_CASE("a caller gives up when the lock does not come, and its work is never done") {
    HelperThread &thread = helper(short_time);
    auto *const late = new std::atomic<bool>{false};
    {
        const std::lock_guard lock(outer_mutex);
        CHECK_FALSE(thread.run([=] { *late = true; }));
        CHECK_FALSE(thread.run([=] { *late = true; })); // the first turn has not ended
    }
    run_in_the_end(thread);
    CHECK_FALSE(*late);
    delete late;
}

TEST_CASE("work that takes too long goes on, and holds up no caller") {
    HelperThread &thread = helper(short_time);
    auto *const may_end = new std::promise<void>;
    std::atomic<bool> began{false};
    while (!began) { // the lock may come too late as well
        began = thread.run([=] { may_end->get_future().wait(); });
    }
    CHECK_FALSE(thread.run([] {}));
    may_end->set_value();
    run_in_the_end(thread);
    delete may_end;
}

TEST_CASE("after the end has begun no work does") {
    HelperThread &thread = helper(long_time);
    thread.close(long_time);
    CHECK_FALSE(thread.run([] {}));
}

TEST_CASE("the end waits for work that has begun") {
    HelperThread &thread = helper(long_time);
    std::promise<void> begun, may_end;
    std::atomic<bool> done{false};
    std::thread caller([&] {
        thread.run([&] {
            begun.set_value();
            may_end.get_future().wait();
            done = true;
        });
    });
    begun.get_future().wait();
    thread.close(short_time);
    CHECK_FALSE(done);
    may_end.set_value();
    thread.close(long_time);
    CHECK(done);
    caller.join();
}

TEST_CASE("a caller whose work was asked for before the end began is told that it never will") {
    HelperThread &thread = helper(long_time);
    std::atomic<bool> done{false}, began{true};
    std::thread caller;
    {
        const std::lock_guard lock(outer_mutex);
        caller = std::thread([&] { began = thread.run([&] { done = true; }); });
        thread.close(short_time);
    }
    caller.join();
    CHECK_FALSE(began);
    CHECK_FALSE(done);
}

TEST_CASE("callers go on when the lock ends the thread that asks for it") {
    HelperThread &thread = helper(short_time, {&end_thread, &release});
    CHECK_FALSE(thread.run([] {}));
    CHECK_FALSE(thread.run([] {}));
}

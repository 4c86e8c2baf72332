// Whether a reset waits for the calls of handles, in each form of their announcement.
#include "../../../parts/sandbox.h"
#include "catch.h"
#include "core/record/epoch.h"

#include <atomic>
#include <functional>
#include <pthread.h>
#include <sched.h>
#include <thread>

using namespace emm::core;

namespace {

std::atomic<int> moves{0}; // from one processor to another

}

// In place of glibc's.
extern "C" int sched_setaffinity(pid_t thread, size_t bytes, const cpu_set_t *processors) noexcept {
    moves++;
    return syscall(SYS_sched_setaffinity, thread, bytes, processors) < 0 ? -1 : 0;
}

namespace {

// A call that ends when the test says so, and what a thread that closes the epoch has seen.
struct Scene {
    Epoch epoch;
    std::atomic<bool> inside{false}, may_leave{false}, left{false}, closed_too_early{false};

    void stay() {
        inside = true;
        while (!may_leave) {
            std::this_thread::yield();
        }
        left = true;
    }
    void call() {
        const HandleCall call(epoch);
        stay();
    }
    // `in_thread` makes the call in a thread of its own.
    void play(const std::function<void()> &in_thread) {
        std::thread caller(in_thread);
        while (!inside) {
            std::this_thread::yield();
        }
        std::thread closer([this] {
            const Closed closed(epoch);
            closed_too_early = !left;
        });
        while (epoch.serving() == 0) { // it has begun to close
            std::this_thread::yield();
        }
        for (int i = 0; i < 200; i++) { // time to finish too early
            std::this_thread::yield();
        }
        may_leave = true;
        closer.join();
        caller.join();
    }
};

Scene *scene_at_the_end = nullptr;
pthread_key_t last_key;

// The second time round the destructors of everything else that the thread had have run.
void call_at_the_end(void *round) {
    if (round != &last_key) {
        pthread_setspecific(last_key, &last_key);
    } else {
        scene_at_the_end->call();
    }
}

} // namespace

TEST_CASE("an epoch closes when the call inside has ended") {
    Scene scene;
    scene.play([&] { scene.call(); });
    CHECK_FALSE(scene.closed_too_early);
}

TEST_CASE("an epoch closes when a call inside another context's call has ended") {
    Scene scene;
    Epoch outer;
    scene.play([&] {
        const HandleCall call(outer);
        scene.call();
    });
    CHECK_FALSE(scene.closed_too_early);
}

TEST_CASE("an epoch closes when the outer one of two calls has ended") {
    Scene scene;
    scene.play([&] {
        const HandleCall call(scene.epoch);
        { const HandleCall within(scene.epoch); }
        scene.stay();
    });
    CHECK_FALSE(scene.closed_too_early);
}

TEST_CASE("an epoch closes when the call of a thread at its end has ended") {
    Scene scene;
    scene_at_the_end = &scene;
    REQUIRE(pthread_key_create(&last_key, &call_at_the_end) == 0);
    scene.play([] {
        Epoch before;
        { const HandleCall call(before); }
        pthread_setspecific(last_key, scene_at_the_end);
    });
    pthread_key_delete(last_key);
    CHECK_FALSE(scene.closed_too_early);
}

TEST_CASE("an epoch does not wait for calls of other contexts") {
    Scene scene;
    Epoch other;
    std::thread caller([&] { scene.call(); });
    while (!scene.inside) {
        std::this_thread::yield();
    }
    { const Closed closed(other); }
    CHECK_FALSE(scene.left);
    scene.may_leave = true;
    caller.join();
}

TEST_CASE("a thread that ends leaves its slot to the next one") {
    Epoch epoch;
    const auto epoch_slot = [&] {
        const EpochSlot *mine = nullptr;
        std::thread([&] {
            { const HandleCall call(epoch); }
            mine = this_thread.epoch_slot;
        }).join();
        return mine;
    };
    const EpochSlot *const first = epoch_slot();
    if (!first) {
        SUCCEED("calls are counted here: there is no membarrier");
        return;
    }
    CHECK(epoch_slot() == first);
}

TEST_CASE("where the kernel takes its barrier away, an epoch closes by way of every processor") {
    Epoch epoch;
    { const HandleCall call(epoch); } // with a slot of this thread's
    if (!forbid_membarrier()) {
        return;
    }
    const Closed closed(epoch);
    CHECK(moves > 0);
}

#include "fence/spin_lock.h"

#include "catch.h"
#include "parts/threads.h"

#include <chrono>
#include <mutex>
#include <pthread.h>
#include <thread>

using emm::SpinLock;

TEST_CASE("a spin lock lets one thread in at a time") {
    SpinLock lock;
    uint64_t count = 0;
    in_threads(4, [&](size_t) {
        for (int i = 0; i < 20'000; i++) {
            const std::lock_guard guard(lock);
            count++;
        }
    });
    CHECK(count == 80'000);
}

TEST_CASE("who waits long for a spin lock sleeps, and is not cancelled there") {
    static SpinLock lock;
    static std::atomic<bool> is_waiting{false}, has_entered{false};
    lock.lock();
    pthread_t waiter;
    const auto wait = [](void *) -> void * {
        is_waiting = true;
        {
            const std::lock_guard guard(lock);
            has_entered = true;
        }
        pthread_testcancel();
        return nullptr;
    };
    REQUIRE(pthread_create(&waiter, nullptr, wait, nullptr) == 0);
    while (!is_waiting) {
        std::this_thread::yield();
    }
    REQUIRE(pthread_cancel(waiter) == 0);
    std::this_thread::sleep_for(std::chrono::milliseconds(30));
    clockid_t clock;
    timespec used = {};
    REQUIRE(pthread_getcpuclockid(waiter, &clock) == 0);
    REQUIRE(clock_gettime(clock, &used) == 0);
    CHECK_FALSE(has_entered);
    lock.unlock();
    void *result = nullptr;
    REQUIRE(pthread_join(waiter, &result) == 0);
    CHECK(has_entered);
    CHECK(result == PTHREAD_CANCELED); // afterwards
    CHECK((used.tv_sec == 0 && used.tv_nsec < 20'000'000));
}

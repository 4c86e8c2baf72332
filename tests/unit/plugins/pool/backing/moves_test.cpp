#include "backing/moves.h"

#include "catch.h"

#include <atomic>
#include <thread>

using emm::pool::Lock;
using emm::pool::Moves;
using emm::pool::Mutex;
using emm::pool::Unlocked;

TEST_CASE("a watch sees that a move of another thread has ended") {
    Mutex mutex;
    Moves moves;
    Lock lock(mutex);
    const Moves::Watch watch(moves);
    {
        const Unlocked unlocked(lock);
        std::thread([&] {
            const Lock its_lock(mutex);
            const Moves::Move move(moves);
        }).join();
    }
    CHECK(moves.await(lock, watch));
}

TEST_CASE("a watch waits for the end of a move that is under way") {
    Mutex mutex;
    Moves moves;
    std::atomic<bool> under_way{false}, ended{false}, watched{false};
    std::thread other([&] {
        Lock its_lock(mutex);
        const Moves::Move move(moves);
        {
            const Unlocked unlocked(its_lock);
            under_way = true;
            while (!watched) {
                std::this_thread::yield();
            }
        }
        ended = true;
    });
    while (!under_way) {
        std::this_thread::yield();
    }
    {
        Lock lock(mutex);
        const Moves::Watch watch(moves);
        watched = true;
        CHECK(moves.await(lock, watch));
        CHECK(ended);
    }
    other.join();
}

TEST_CASE("a watch sees no move of its own thread, and none that ended before it began") {
    Mutex mutex;
    Moves moves;
    std::thread([&] {
        const Lock its_lock(mutex);
        const Moves::Move move(moves);
    }).join();
    Lock lock(mutex);
    const Moves::Watch watch(moves);
    { const Moves::Move move(moves); }
    CHECK_FALSE(moves.await(lock, watch));
}

TEST_CASE("returns are deferred until every deferral has ended, and one end too many is none") {
    Moves moves;
    moves.defer_returns();
    moves.defer_returns();
    moves.end_deferral();
    CHECK(moves.returns_are_deferred());
    moves.end_deferral();
    moves.end_deferral();
    CHECK_FALSE(moves.returns_are_deferred());
    moves.defer_returns();
    CHECK(moves.returns_are_deferred());
}

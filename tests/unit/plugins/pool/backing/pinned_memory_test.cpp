// Pinned memory by itself.
#include "../parts.h"

#include "backing/pinned_memory.h"

#include <set>

using namespace pool_test;

TEST_CASE("pinned: a thread that takes a complete block gets the others of its size with it") {
    Parts parts;
    StreamPool &pool = parts.registered(parts.stream());
    PinnedBound bound(64 * MiB);
    const HostNode node(parts.served, false);
    CrossContext cross_context(parts.served, parts.order);
    Moves moves;
    PinnedMemory pinned(bound, node, parts.order, cross_context, parts.caches, moves,
                        parts.serving);
    constexpr size_t size = 64 * KiB;
    const auto take = [&] {
        CUresult result = CUDA_SUCCESS;
        Block *block = pinned.take(parts.lock, 0, size, result);
        REQUIRE(block);
        return block;
    };
    Block *const blocks[] = {take(), take(), take()};
    for (Block *block : blocks) {
        pinned.free({block, nullptr}, pool);
        pinned.keep_until_complete(*block, pool);
    }
    const auto from_magazine = [&] {
        const Unlocked unlocked(parts.lock);
        return pinned.take_from_magazine(0, size);
    };
    CHECK(from_magazine() == nullptr);
    pinned.complete(pool, parts.order.clock().now());
    const std::set<Block *> taken = {take(), from_magazine(), from_magazine()};
    CHECK(taken == std::set<Block *>(std::begin(blocks), std::end(blocks)));
    CHECK(from_magazine() == nullptr);
    auto segments = pinned.forget_all();
    const Unlocked unlocked(parts.lock);
    pinned.give_back(segments);
}

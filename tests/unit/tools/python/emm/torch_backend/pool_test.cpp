// A pool of PyTorch's, without PyTorch.
#include "pool.h"

#include "catch.h"

#include <cstdint>

using namespace emm::torch_backend;

namespace {

constexpr size_t MiB = size_t(1) << 20;

Stream stream(uintptr_t number) {
    return reinterpret_cast<Stream>(number);
}

char *at(uintptr_t address) {
    return reinterpret_cast<char *>(address);
}

Pool pool_of(uintptr_t base, size_t size) {
    Pool pool;
    pool.adopt({at(base), size, nullptr}, stream(1));
    return pool;
}

size_t live_in(const Pool &pool) {
    size_t live = 0;
    for (const auto &[ptr, chunk] : pool.chunks()) {
        live += chunk.requested != 0;
    }
    return live;
}

} // namespace

TEST_CASE("a pool of PyTorch's splits a segment, and joins its parts again") {
    Pool pool = pool_of(MiB, 2 * MiB);
    void *first = pool.take(1000, stream(1)), *second = pool.take(1000, stream(1)),
         *third = pool.take(1000, stream(1));
    CHECK(first == at(MiB));
    CHECK(second == at(MiB + 1024));
    CHECK(third == at(MiB + 2048));
    pool.put(first);
    pool.put(third);
    CHECK(pool.chunks().size() == 3);
    pool.put(second);
    REQUIRE(pool.chunks().size() == 1);
    CHECK(pool.chunks().begin()->second.size == 2 * MiB);
}

TEST_CASE("a pool of PyTorch's gives out the tightest free part") {
    Pool pool = pool_of(MiB, 2 * MiB);
    void *large = pool.take(8192, stream(1));
    pool.take(512, stream(1));
    void *small = pool.take(1024, stream(1));
    pool.take(512, stream(1));
    pool.put(large);
    pool.put(small);
    CHECK(pool.take(1024, stream(1)) == small);
    CHECK(pool.take(1024, stream(1)) == large);
}

TEST_CASE("a pool of PyTorch's joins no parts of different segments") {
    Pool pool = pool_of(MiB, MiB);
    pool.adopt({at(2 * MiB), MiB, nullptr}, stream(1));
    CHECK(pool.take(2 * MiB, stream(1)) == nullptr);
    void *first = pool.take(MiB, stream(1)), *second = pool.take(MiB, stream(1));
    pool.put(first);
    pool.put(second);
    CHECK(pool.take(2 * MiB, stream(1)) == nullptr);
}

TEST_CASE("a pool of PyTorch's keeps memory to the stream of its segment") {
    Pool pool = pool_of(MiB, MiB);
    CHECK(pool.take(512, stream(2)) == nullptr);
    void *ptr = pool.take(512, stream(1));
    pool.put(ptr);
    CHECK(pool.take(512, stream(1)) == ptr);
}

TEST_CASE("what another stream has used waits until it is released") {
    Pool pool = pool_of(MiB, MiB);
    void *ptr = pool.take(512, stream(1));
    pool.share(ptr, stream(2));
    CHECK(pool.put(ptr) == std::vector<Stream>{stream(2)});
    CHECK(pool.take(512, stream(1)) != ptr);
    pool.release(ptr);
    CHECK(pool.take(512, stream(1)) == ptr);
    pool.release(ptr); // no release: it is live
    CHECK(pool.put(ptr).empty());
}

TEST_CASE("a pool of PyTorch's is rewound, with what it has got since free") {
    Pool pool = pool_of(MiB, MiB);
    void *kept = pool.take(1000, stream(1));
    const Chunks earlier = pool.chunks();
    pool.put(kept);
    pool.take(2000, stream(1));
    pool.adopt({at(4 * MiB), MiB, nullptr}, stream(1));
    pool.take(MiB, stream(1));
    pool.restore(earlier);
    CHECK(live_in(pool) == 1);
    CHECK(pool.chunks().at(at(MiB)).requested == 1000);
    CHECK(pool.take(MiB, stream(1)) == at(4 * MiB));
}

TEST_CASE("a pool of PyTorch's without users gives up the segments without live memory") {
    Pool pool = pool_of(MiB, MiB);
    pool.adopt({at(4 * MiB), MiB, nullptr}, stream(1));
    pool.users_ = 1;
    void *first = pool.take(512, stream(1)), *second = pool.take(MiB, stream(1));
    pool.put(second);
    CHECK(pool.take_unneeded().empty());
    pool.users_ = 0;
    const std::vector<Segment> unneeded = pool.take_unneeded();
    REQUIRE(unneeded.size() == 1);
    CHECK(unneeded[0].base == at(4 * MiB));
    REQUIRE(pool.segments().size() == 1);
    CHECK(pool.chunks().count(at(4 * MiB)) == 0);
    CHECK(live_in(pool) == 1);
    CHECK_FALSE(pool.is_over());
    pool.put(first);
    CHECK(pool.take_unneeded().size() == 1);
    CHECK(pool.chunks().empty());
    CHECK(pool.is_over());
}

TEST_CASE("a pool of PyTorch's that has allocations of emm's is not over") {
    Pool pool;
    CHECK(pool.is_over());
    pool.allocations_ = 1;
    CHECK_FALSE(pool.is_over());
    pool.allocations_ = 0;
    pool.users_ = 1;
    CHECK_FALSE(pool.is_over());
}

TEST_CASE(
    "a pool of PyTorch's uses segments for graphs, and where PyTorch says what a segment is") {
    Pool plain, captured, unsplit;
    CHECK_FALSE(plain.uses_segments());
    captured.is_captured_ = true;
    CHECK(captured.uses_segments());
    unsplit.no_split_ = true;
    CHECK(unsplit.uses_segments());
}

TEST_CASE(
    "a pool of PyTorch's lends only if it may be used on out of memory, and never a graph's") {
    Pool pool;
    CHECK_FALSE(pool.lends());
    pool.use_on_oom_ = true;
    CHECK(pool.lends());
    pool.is_captured_ = true;
    CHECK_FALSE(pool.lends());
}

TEST_CASE("any request may have emm's idle segments given back, but no graph's") {
    Pool pool;
    CHECK(pool.may_shrink(true));
    CHECK(pool.may_shrink(false));
    pool.is_captured_ = true;
    CHECK_FALSE(pool.may_shrink(true));
    CHECK_FALSE(pool.may_shrink(false));
}

TEST_CASE("a pool of PyTorch's in use gives up the segments that are free as a whole") {
    Pool pool = pool_of(MiB, MiB);
    pool.adopt({at(4 * MiB), MiB, nullptr}, stream(1));
    pool.adopt({at(8 * MiB), MiB, nullptr}, stream(1));
    pool.users_ = 1;
    void *live = pool.take(512, stream(1)), *waiting = pool.take(MiB, stream(1)),
         *idle = pool.take(MiB, stream(1));
    CHECK(live == at(MiB));
    pool.share(waiting, stream(2));
    CHECK(pool.put(waiting).size() == 1);
    CHECK(pool.put(idle).empty());
    std::vector<Segment> taken = pool.take_idle();
    REQUIRE(taken.size() == 1);
    CHECK(taken[0].base == idle);
    CHECK(pool.take_idle().empty());
    pool.release(waiting);
    taken = pool.take_idle();
    REQUIRE(taken.size() == 1);
    CHECK(taken[0].base == waiting);
    CHECK(live_in(pool) == 1);
    CHECK(pool.segments().size() == 1);
}

TEST_CASE("a pool of PyTorch's knows whether an earlier segment is gone") {
    Pool pool = pool_of(MiB, MiB);
    pool.adopt({at(4 * MiB), MiB, nullptr}, stream(1));
    void *first = pool.take(512, stream(1)), *second = pool.take(MiB, stream(1));
    const Chunks earlier = pool.chunks();
    pool.put(second);
    CHECK(pool.holds_segments_of(earlier));
    pool.take_unneeded();
    CHECK_FALSE(pool.holds_segments_of(earlier));
    CHECK(pool.holds_segments_of(pool.chunks()));
    pool.put(first);
}

TEST_CASE("PyTorch counts a tensor in whole blocks of 512 bytes") {
    CHECK(block_size(1) == 512);
    CHECK(block_size(512) == 512);
    CHECK(block_size(513) == 1024);
    CHECK_FALSE(is_large_segment(2 * MiB));
    CHECK(is_large_segment(4 * MiB));
}

TEST_CASE("a pool of PyTorch's asks for whole segments, and for single ones if told so") {
    Pool pool;
    CHECK(pool.segment_size(1) == 2 * MiB);
    CHECK(pool.segment_size(2 * MiB) == 20 * MiB);
    CHECK(pool.segment_size(11 * MiB) == 12 * MiB);
    pool.no_split_ = true;
    CHECK(pool.segment_size(2 * MiB) == 2 * MiB);
    pool.adopt({at(2 * MiB), 2 * MiB, nullptr}, stream(1));
    CHECK(pool.take(MiB, stream(1)) == at(2 * MiB));
    CHECK(pool.take(512, stream(1)) == nullptr);
}

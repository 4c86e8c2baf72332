// PyTorch's figures for several pools of emm's, without PyTorch.
#include "figures.h"

#include "catch.h"

using namespace emm::torch_backend;

namespace {

emm_stats figures(uint64_t live, uint64_t cached, uint64_t pending, uint64_t peak) {
    emm_stats stats = {};
    stats.live_bytes = live;
    stats.cached_bytes = cached;
    stats.pending_bytes = pending;
    stats.reserved_bytes = live + cached + pending;
    stats.peak_reserved_bytes = peak;
    return stats;
}

} // namespace

TEST_CASE("figures of pools are summed up") {
    const emm_stats sum = sum_of({figures(1, 2, 3, 6), figures(10, 20, 30, 70)});
    CHECK(sum.live_bytes == 11);
    CHECK(sum.cached_bytes == 22);
    CHECK(sum.pending_bytes == 33);
    CHECK(sum.reserved_bytes == 66);
    CHECK(sum_of({}).reserved_bytes == 0);
    CHECK(sum_of({}).struct_size == sizeof(emm_stats));
}

TEST_CASE("the peak of a sum is what the pools have certainly held together") {
    CHECK(sum_of({figures(4, 0, 0, 4), figures(1, 0, 0, 90)}).peak_reserved_bytes == 90);
    CHECK(sum_of({figures(60, 0, 0, 60), figures(50, 0, 0, 50)}).peak_reserved_bytes == 110);
}

TEST_CASE("a pool may hold what it caches, and what is on its way there") {
    CHECK(may_hold(figures(9, 4, 3, 0), 7));
    CHECK_FALSE(may_hold(figures(9, 4, 3, 0), 8));
}

TEST_CASE("a snapshot lists what is reserved, and no more") {
    CHECK(unlisted(figures(8, 4, 0, 0), 8) == 4);
    CHECK(unlisted(figures(8, 0, 0, 0), 8) == 0);
    CHECK(unlisted(figures(8, 0, 0, 0), 512) == 0);
}

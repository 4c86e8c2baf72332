// Live blocks as the segments of a snapshot, without PyTorch.
#include "layout.h"

#include "catch.h"

using namespace emm::torch_backend;

namespace {

constexpr size_t mebi = size_t(1) << 20, base = 64 * mebi;

size_t sum_of(const std::vector<Part> &parts) {
    size_t sum = 0;
    for (const Part &part : parts) {
        sum += part.size;
    }
    return sum;
}

} // namespace

TEST_CASE("blocks that share a page are one run of whole pages") {
    const std::vector<Live> blocks = {
        {base + 512, 1024}, {base + mebi, 3 * mebi}, {base + 4 * mebi, 512}};
    const std::vector<Run> runs = runs_by_page(blocks);
    REQUIRE(runs.size() == 2);
    CHECK(runs[0].address == base);
    CHECK(runs[0].size == 4 * mebi);
    CHECK(runs[0].count == 2);
    CHECK(runs[1].first == 2);
    CHECK(runs[1].address == base + 4 * mebi);
    CHECK(runs[1].size == 2 * mebi);
}

TEST_CASE("what is idle in a page is told between the blocks") {
    const std::vector<Live> blocks = {{base + 512, 1024}, {base + mebi, mebi / 2}};
    const std::vector<Part> parts = parts_of(runs_by_page(blocks)[0], blocks);
    REQUIRE(parts.size() == 5);
    CHECK(sum_of(parts) == 2 * mebi);
    CHECK(parts[0].size == 512);
    CHECK_FALSE(parts[0].is_live);
    CHECK(parts[1].is_live);
    CHECK(parts[1].size == 1024);
    CHECK(parts[2].size == mebi - 1536);
    CHECK(parts[3].index == 1);
    CHECK(parts[4].size == mebi / 2);
}

TEST_CASE("a block that is counted larger than it is ends where the next one begins") {
    const std::vector<Live> blocks = {{base, 512}, {base + 256, 512}, {base + 2 * mebi - 256, 512}};
    const std::vector<Run> runs = runs_by_page(blocks);
    REQUIRE(runs.size() == 1);
    const std::vector<Part> parts = parts_of(runs[0], blocks);
    CHECK(parts[0].size == 256);
    CHECK(parts[1].size == 512);
    CHECK(sum_of(parts) == runs[0].size);
}

TEST_CASE("a run is only of pages that the pool can hold") {
    const std::vector<Live> blocks = {{base, 512}, {base + mebi, 1024}};
    size_t size = 0;
    CHECK(runs_of(blocks, 2 * mebi, &size).size() == 1);
    CHECK(size == 2 * mebi);
    const std::vector<Run> exact = runs_of(blocks, mebi, &size);
    REQUIRE(exact.size() == 2);
    CHECK(size == 1536);
    CHECK(parts_of(exact[1], blocks).size() == 1);
    CHECK(runs_of({}, mebi, &size).empty());
    CHECK(size == 0);
}

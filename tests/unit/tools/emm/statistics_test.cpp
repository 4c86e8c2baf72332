#include "catch.h"
#include "statistics.h"
#include "table.h"

using namespace emm::tool;

TEST_CASE("a percentile is a value that occurred, with that share of all values at or below it") {
    std::vector<uint64_t> values;
    for (uint64_t i = 1000; i > 0; i--) {
        values.push_back(i);
    }
    const Summary summary = summarize(values);
    CHECK(summary.mean == Approx(500.5));
    CHECK(summary.p50 == 500);
    CHECK(summary.p99 == 990);
    CHECK(summary.p999 == 999);
}

TEST_CASE("one slow call among few is the 99.9th percentile") {
    std::vector<uint64_t> values = {10, 10, 10, 5000};
    const Summary summary = summarize(values);
    CHECK(summary.p50 == 10);
    CHECK(summary.p999 == 5000);
}

TEST_CASE("no values have no statistics") {
    std::vector<uint64_t> none;
    CHECK(summarize(none).mean == 0);
    CHECK(median({}) == 0);
}

TEST_CASE("the median does not care how far off an outlier is") {
    CHECK(median({3, 1, 1e9}) == 3);
    CHECK(median({4, 1, 2, 100}) == 3);
}

TEST_CASE("a table's columns are as wide as their widest entry") {
    Table table({"plugin", "ns"});
    table.add({"a-long-name", "7"});
    CHECK(table.text() == "plugin       ns\na-long-name   7\n");
}

TEST_CASE("sizes are told in the largest unit that leaves a whole number before the point") {
    CHECK(in_bytes(0) == "0 B");
    CHECK(in_bytes(1023) == "1023 B");
    CHECK(in_bytes(1536) == "1.5 KiB");
    CHECK(in_bytes(uint64_t(3) << 30) == "3.0 GiB");
}

#include "catch.h"
#include "recorded.h"
#include "report/dimension.h"

using namespace emm::tool;

namespace {

std::string label_of(const Dimension &dimension, size_t block) {
    return dimension.labels[dimension.of[block]];
}

} // namespace

TEST_CASE("a caller is a function of a library, wherever in it the call is") {
    Script script;
    script.alloc(1, 1, 8, "/lib/a.so+0x12 (work(int)+0x3)")
        .alloc(2, 2, 8, "/lib/a.so+0x15 (work(int)+0x6)")
        .alloc(3, 3, 8, "/lib/a.so+0x99")
        .alloc(4, 4, 8)
        .alloc(5, 5, 8, "bad\x1b[2Jname");
    const Dimension callers = by_caller(script.history(), script.recorded.sites);
    CHECK(label_of(callers, 0) == "work(int) in a.so");
    CHECK(callers.of[0] == callers.of[1]);
    CHECK(label_of(callers, 2) == "0x99 in a.so");
    CHECK(label_of(callers, 3) == "unknown");
    CHECK(label_of(callers, 4) == "bad?[2Jname");
    const Dimension libraries = by_library(script.history(), script.recorded.sites);
    CHECK(label_of(libraries, 0) == "/lib/a.so");
    CHECK(label_of(libraries, 3) == "unknown");
}

TEST_CASE("a caller is the first line outside of helpers that all of a program calls") {
    Script script;
    const std::string helper = "/lib/a.so+0x1\t/me/train.py:7 (alloc)\t";
    script.alloc(1, 1, 8, helper + "/me/train.py:20 (forward)\t/me/train.py:90 (<module>)")
        .alloc(2, 2, 8, helper + "/me/train.py:33 (backward)\t/me/train.py:90 (<module>)")
        .alloc(3, 3, 8, "/lib/a.so+0x1\t/me/train.py:34 (backward)\t/me/train.py:90 (<module>)");
    const Dimension callers = by_caller(script.history(), script.recorded.sites);
    CHECK(label_of(callers, 0) == "train.py:20 (forward)");
    CHECK(label_of(callers, 1) == "train.py:33 (backward)");
    CHECK(label_of(callers, 2) == "train.py:34 (backward)");
}

TEST_CASE("a helper of helpers is a wrapper too, and what one line calls is none") {
    Script script;
    const std::string helper = "/lib/a.so+0x1\t/me/h.py:7 (raw)\t";
    script.alloc(1, 1, 8, helper + "/me/h.py:12 (zeros)\t/me/t.py:20 (f)\t/me/t.py:9 (<module>)")
        .alloc(2, 2, 8, helper + "/me/h.py:12 (zeros)\t/me/t.py:30 (g)\t/me/t.py:9 (<module>)")
        .alloc(3, 3, 8, helper + "/me/h.py:15 (ones)\t/me/t.py:40 (h)\t/me/t.py:9 (<module>)");
    const Dimension callers = by_caller(script.history(), script.recorded.sites);
    CHECK(label_of(callers, 0) == "t.py:20 (f)");
    CHECK(label_of(callers, 1) == "t.py:30 (g)");
    CHECK(label_of(callers, 2) == "h.py:15 (ones)"); // only one line calls it
}

TEST_CASE("a function that calls itself is left for the line that called it first") {
    Script script;
    script.alloc(1, 1, 8, "/a.so+0x1\t/me/t.py:5 (tree)\t/me/t.py:6 (tree)\t/me/t.py:9 (<module>)")
        .alloc(2, 2, 8, "/a.so+0x1\t/me/t.py:5 (tree)\t/me/t.py:9 (<module>)");
    const Dimension callers = by_caller(script.history(), script.recorded.sites);
    CHECK(label_of(callers, 0) == "t.py:9 (<module>)");
    CHECK(label_of(callers, 1) == "t.py:9 (<module>)");
}

TEST_CASE("lifetimes have four classes of the whole time, and two for blocks that were not freed") {
    Script script;
    script.alloc(1, 0, 1).alloc(2, 0, 1).alloc(3, 0, 1).alloc(4, 0, 1).alloc(5, 0, 1);
    script.free(5, 9).free(4, 10).free(3, 100).free(2, 500).alloc(6, 1000, 1).free(6, 1000);
    script.alloc(7, 1000, 1)
        .drop(7, 1000, Drop::reset)
        .alloc(8, 1000, 1)
        .drop(8, 1000, Drop::context_end);
    const Dimension lifetimes = by_lifetime(script.history());
    CHECK(lifetimes.of == std::vector<uint32_t>{0, 2, 3, 4, 5, 5, 1, 1});
    CHECK(label_of(lifetimes, 7) == "dropped, not freed");
}

TEST_CASE("sizes at the peak are exact, and others have the class of their power of two") {
    Script script;
    script.alloc(1, 1, 1000).free(1, 2).alloc(2, 3, 4096).alloc(3, 4, 3);
    const Dimension sizes = by_size(script.history(), 3);
    CHECK(label_of(sizes, 0) == "from 512 B");
    CHECK(label_of(sizes, 1) == "4.0 KiB");
    CHECK(label_of(sizes, 2) == "3 B");
}

TEST_CASE("sizes whose rounded texts are the same are told in bytes") {
    Script script;
    script.alloc(1, 1, 3 << 20).alloc(2, 2, (3 << 20) + 8).alloc(3, 3, 4096);
    const Dimension sizes = by_size(script.history(), 2);
    CHECK(label_of(sizes, 0) == "3145728 B");
    CHECK(label_of(sizes, 1) == "3145736 B");
    CHECK(label_of(sizes, 2) == "4.0 KiB");
}

TEST_CASE("streams are told by their names") {
    Script script;
    script.alloc(1, 1, 8, "", 0, 5).alloc(2, 2, 8, "", 0, never);
    const Dimension streams = by_stream(script.history());
    CHECK(label_of(streams, 0) == "stream 5");
    CHECK(label_of(streams, 1) == "stream none");
}

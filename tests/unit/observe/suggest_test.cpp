#include "catch.h"
#include "observe/suggest.h"

namespace emm::observe {
namespace {

const std::vector<std::string> plugins = {"async", "passthrough", "pool"};

TEST_CASE("a word with a slip is corrected") {
    CHECK(suggestion("pol", plugins) == "did you mean 'pool'?");
    CHECK(suggestion("poool", plugins) == "did you mean 'pool'?");
    CHECK(suggestion("polo", plugins) == "did you mean 'pool'?");
    CHECK(suggestion("trian", {"serve", "train"}) == "did you mean 'train'?");
    CHECK(suggestion("asinc", plugins) == "did you mean 'async'?");
    CHECK(suggestion("passthru", plugins) == "did you mean 'passthrough'?");
}

TEST_CASE("a word in another case is corrected") {
    CHECK(suggestion("POOL", plugins) == "did you mean 'pool'?");
    CHECK(suggestion("Asinc", plugins) == "did you mean 'async'?");
    CHECK(suggestion("plugin", {"EMM", "PLUGIN"}) == "did you mean 'PLUGIN'?");
}

TEST_CASE("a word that is like none gets no suggestion") {
    CHECK(suggestion("jemalloc", plugins).empty());
    CHECK(suggestion("x", plugins).empty());
    CHECK(suggestion("2", {"0", "1"}).empty());
    CHECK(suggestion("pool", {}).empty());
}

TEST_CASE("the closest of several is suggested") {
    CHECK(suggestion("pool2", {"poll", "pool", "tool"}) == "did you mean 'pool'?");
}

TEST_CASE("an endless word is not measured") {
    CHECK(suggestion(std::string(1 << 20, 'p'), plugins).empty());
}

TEST_CASE("a list is sorted, and names each word once") {
    CHECK(listed({"pool", "async", "pool"}) == "async, pool");
    CHECK(listed({}).empty());
}

} // namespace
} // namespace emm::observe

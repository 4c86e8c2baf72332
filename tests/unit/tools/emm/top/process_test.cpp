#include "top/process.h"

#include "catch.h"

using namespace emm::tool::top;

namespace {

const std::string table_head = "Num       RefCount Protocol Flags    Type St Inode Path\n";
const std::string good_name = "emm-top-4711-0123456789abcdef";

std::string socket_line(const std::string &path, const char *flags = "00010000") {
    return std::string("ffff9c5b00000000: 00000002 00000000 ") + flags + " 0005 01 31337" + path +
           "\n";
}

} // namespace

TEST_CASE("listening sockets with a good_name of emm's are found, each once") {
    const std::vector<Name> names =
        names_in(table_head + socket_line(" @" + good_name) + socket_line(" @" + good_name) +
                 socket_line(" /run/user/1000/bus") + socket_line("") +
                 socket_line(" @emm-top-1-00000000000000ff"));
    REQUIRE(names.size() == 2);
    CHECK(names[0].text == good_name);
    CHECK(names[0].claimed_pid == 4711);
    CHECK(names[1].claimed_pid == 1);
}

TEST_CASE("a connection, which has the good_name of the listening socket, is none") {
    CHECK(names_in(table_head + socket_line(" @" + good_name, "00000000")).empty());
}

TEST_CASE("names that only look like emm's are left alone") {
    for (const char *bad :
         {" @emm-top-", " @emm-top-1", " @emm-top-1-", " @emm-top-x-0123456789abcdef",
          " @emm-top-0-0123456789abcdef", " @emm-top--1-0123456789abcdef",
          " @emm-top-1-0123456789abcde", " @emm-top-1-0123456789abcdeff",
          " @emm-top-1-0123456789ABCDEF", " @emm-top-99999999999999999999-0123456789abcdef",
          " emm-top-1-0123456789abcdef", "@emm-top-1-0123456789abcdef",
          " @@emm-top-1-0123456789abcdef", " @emm-top-1-0123456789abcdef "}) {
        INFO(bad);
        CHECK(names_in(table_head + socket_line(bad)).empty());
    }
    CHECK(names_in("").empty());
    CHECK(names_in("\n\n \n").empty());
}

namespace {

Process counted(const std::string &name, uint64_t context, uint64_t allocations, int64_t at) {
    Process made;
    made.name = name;
    made.contexts.emplace_back();
    made.contexts[0].id = context;
    made.contexts[0].at = at;
    made.contexts[0].stats.emplace();
    made.contexts[0].stats->allocations = allocations;
    return made;
}

std::optional<double> rate_between(const Process &before, Process now) {
    std::vector<Process> after = {std::move(now)};
    find_rates({before}, after);
    return after[0].contexts[0].allocations_rate;
}

} // namespace

TEST_CASE("a rate is the difference of two counts by the process's own clock") {
    CHECK(rate_between(counted("a", 1, 100, 1'000'000'000), counted("a", 1, 350, 1'500'000'000)) ==
          std::optional<double>(500));
    CHECK(rate_between(counted("a", 1, 100, 1'000'000'000), counted("a", 1, 100, 2'000'000'000)) ==
          std::optional<double>(0));
}

TEST_CASE("there is no rate of a context that is new, was reset, or was told of once") {
    const Process before = counted("a", 1, 100, 1'000'000'000);
    CHECK_FALSE(rate_between(before, counted("b", 1, 200, 2'000'000'000)));
    CHECK_FALSE(rate_between(before, counted("a", 2, 200, 2'000'000'000)));
    CHECK_FALSE(rate_between(before, counted("a", 1, 50, 2'000'000'000)));
    CHECK_FALSE(rate_between(before, counted("a", 1, 200, 1'000'000'000)));
    Process silent = counted("a", 1, 200, 2'000'000'000);
    silent.contexts[0].stats.reset();
    CHECK_FALSE(rate_between(before, silent));
}

TEST_CASE("a pool's rate is its own, not that of another pool of the CUDA context") {
    Process before = counted("a", 1, 100, 1'000'000'000), now = counted("a", 1, 350, 1'500'000'000);
    before.contexts.push_back(before.contexts[0]);
    before.contexts[1].pool = "kv-cache";
    now.contexts[0].pool = "kv-cache";
    before.contexts[1].stats->allocations = 300;
    CHECK(rate_between(before, now) == std::optional<double>(100));
}

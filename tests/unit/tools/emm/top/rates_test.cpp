#include "top/rates.h"

#include "catch.h"

using namespace emm::tool::top;

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

#include "catch.h"
#include "child.h"

#include <cstdlib>
#include <nlohmann/json.hpp>
#include <thread>
#include <unistd.h>

using namespace emm::tool;

TEST_CASE("settings of the simulated driver are added where the user has not given them") {
    unsetenv("EMM_SIM");
    CHECK(simulator_settings({"race=count"}) == "race=count");
    setenv("EMM_SIM", "progress=lazy,memory=1GiB", 1);
    CHECK(simulator_settings({"race=count", "memory=256GiB"}) ==
          "progress=lazy,memory=1GiB,race=count");
    setenv("EMM_SIM", "race=abort", 1);
    CHECK(simulator_settings({"race=count"}) == "race=abort");
    unsetenv("EMM_SIM");
}

TEST_CASE("messages arrive as they are and in order, also when they are longer than a pipe") {
    int ends[2];
    REQUIRE(pipe(ends) == 0);
    const Json long_one = {{"text", std::string(300'000, 'x')}};
    std::thread writer([&] {
        Channel out(dup(0), ends[1]);
        out.send(long_one);
        out.send({{"name of a file", "tr\xe9"}}); // not UTF-8
        Channel::send_inside(ends[1], "memalloc");
    });
    Channel in(ends[0], -1);
    Channel::End end = Channel::End::none;
    CHECK(*in.receive(10, end) == long_one);
    CHECK(in.receive(10, end)->at("name of a file") == "tr\xe9");
    CHECK(in.receive(10, end)->at("inside") == "memalloc");
    writer.join();
    CHECK_FALSE(in.receive(10, end));
    CHECK(end == Channel::End::closed);
}

TEST_CASE("silence ends with a timeout") {
    int ends[2];
    REQUIRE(pipe(ends) == 0);
    Channel in(ends[0], ends[1]);
    Channel::End end = Channel::End::none;
    CHECK_FALSE(in.receive(0.01, end));
    CHECK(end == Channel::End::timeout);
}

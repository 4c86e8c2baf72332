#include "observe/events/spool.h"

#include "catch.h"

#include <filesystem>
#include <fstream>
#include <unistd.h>

namespace emm::observe {
namespace {

TEST_CASE("a new spool takes the place of one that a killed process left, and of no other file") {
    const std::string path = "/tmp/emm-test-spool-" + std::to_string(getpid());
    std::string reason;
    {
        const auto left = Spool::create(path, reason);
        REQUIRE(left);
        left->add_line("a line");
    }
    REQUIRE(std::filesystem::exists(path));
    {
        const auto anew = Spool::create(path, reason);
        INFO(reason);
        REQUIRE(anew);
        CHECK(anew->lines().empty());
    }
    std::ofstream(path, std::ios::trunc) << "a letter of the user's";
    CHECK_FALSE(Spool::create(path, reason));
    CHECK(reason == path + " was not left by an event log of this version");
    CHECK(std::filesystem::remove(path));
}

} // namespace
} // namespace emm::observe

#include "driver/nvml.h"

#include "driver/limit.h"

#include "catch.h"

#include <unistd.h>

using namespace emm;

struct StandInProcess {
    unsigned pid;
    unsigned long long used;
    unsigned instances[2];
};
extern "C" {
extern int stand_in_init;
extern unsigned stand_in_count;
extern StandInProcess stand_in_processes[200];
}

namespace {

constexpr uint8_t known[16] = {0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15};

} // namespace

TEST_CASE("a UUID is written as NVML writes it") {
    CHECK(driver::uuid_text(known) == "GPU-00010203-0405-0607-0809-0a0b0c0d0e0f");
}

TEST_CASE("the processes of a device are told with their bytes and programs") {
    stand_in_count = 2;
    stand_in_processes[0] = {unsigned(getpid()), 1000, {}};
    stand_in_processes[1] = {4'000'000'000, ~0ull, {}}; // not told, and unknown process
    std::vector<observe::DeviceProcess> found;
    std::string reason;
    REQUIRE(driver::device_processes(known, found, reason));
    REQUIRE(found.size() == 2);
    CHECK((found[0].id == unsigned(getpid()) && found[0].bytes == 1000));
    CHECK_THAT(found[0].name, ContainsSubstring("test"));
    CHECK((found[1].name.empty() && found[1].bytes == 0));
}

TEST_CASE("more processes than were expected are all told") {
    stand_in_count = 150;
    std::vector<observe::DeviceProcess> found;
    std::string reason;
    REQUIRE(driver::device_processes(known, found, reason));
    CHECK(found.size() == 150);
}

TEST_CASE("a device that NVML does not know is a reason") {
    const uint8_t other[16] = {1};
    std::vector<observe::DeviceProcess> found;
    std::string reason;
    CHECK_FALSE(driver::device_processes(other, found, reason));
    CHECK(found.empty());
    CHECK_THAT(reason, ContainsSubstring("NVML failed: Not Found"));
}

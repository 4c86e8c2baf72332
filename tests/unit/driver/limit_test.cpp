#include "driver/limit.h"

#include "catch.h"

using namespace emm::driver;

namespace {

constexpr uint64_t gib = 1 << 30;

std::vector<LimitedDevice> two_devices() {
    return {{"GPU-01234567-aa", 80 * gib}, {"GPU-01239999-bb", 40 * gib}};
}

// "16 8" in GiB, or the complaint.
std::string bounds(const char *text) {
    std::vector<Limit> limits;
    std::vector<LimitedDevice> devices = two_devices();
    std::string problem = parse_limits(text, limits);
    problem = problem.empty() ? apply_limits(limits, devices) : problem;
    return problem.empty() ? std::to_string(devices[0].bound / gib) + " " +
                                 std::to_string(devices[1].bound / gib)
                           : problem;
}

} // namespace

TEST_CASE("a limit is for all devices, for one by its UUID, or for the others") {
    CHECK(bounds("8GiB") == "8 8");
    CHECK(bounds("*=8GiB") == "8 8");
    CHECK(bounds("GPU-01239999-bb=8GiB") == "0 8");
    CHECK(bounds("GPU-01234=50GiB;*=16GiB") == "50 16");
    CHECK(bounds("*=16GiB;GPU-01234=50GiB") == "50 16");
}

TEST_CASE("a limit that makes no sense is refused in one sentence") {
    const std::string size =
        "expected a size such as 8GiB (in KiB, MiB, GiB or TiB), or GPU-UUID=8GiB;*=16GiB, found ";
    for (const char *text : {"8GB", "-1", "8GiB ", "GPU-0123", "=8GiB", "0=8GiB", "GPU-=8GiB",
                             "GPU-01234=", "99999999999999GiB"}) {
        CHECK(bounds(text) == size + "'" + text + "'");
    }
    CHECK(bounds("") == size + "''");
    CHECK(bounds("8GiB;") == size + "''");
    CHECK(bounds("1MiB") == "expected a size of at least 2MiB, found '1MiB'");
    CHECK(bounds("8GiB;*=9GiB") == "expected one size for each device, found '8GiB;*=9GiB'");
    CHECK(bounds("GPU-77=8GiB") ==
          "expected the UUID of a device that the program sees, found 'GPU-77'");
    CHECK(bounds("GPU-0123=8GiB") == "expected the UUID of one device, found 'GPU-0123'");
    CHECK(bounds("60GiB") == "expected at most the 40 GiB that device 1 (GPU-01239999-bb) has, "
                             "found 60 GiB");
}

TEST_CASE("a size is told in its unit, and to the byte where that is not exact") {
    CHECK(size_text(8 * gib) == "8 GiB");
    CHECK(size_text(512 << 20) == "512 MiB");
    CHECK(size_text(85029158912) == "79.19 GiB (85029158912 bytes)");
    CHECK(size_text(17) == "17 bytes");
}

TEST_CASE("a limit that is refused changes no device's bound") {
    std::vector<LimitedDevice> devices = two_devices();
    CHECK(apply_limits({{"", 60 * gib}}, devices) != "");
    CHECK(devices[0].bound == 0);
}

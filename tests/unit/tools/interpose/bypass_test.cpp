#include "bypass.h"

#include "catch.h"

using namespace emm::run;

TEST_CASE("files of the driver are known by their names") {
    CHECK(is_driver_file("/usr/lib/libcuda.so.1"));
    CHECK(is_driver_file("libcuda.so"));
    CHECK(is_driver_file("/opt/libcuda.so.580.159.04"));
    CHECK_FALSE(is_driver_file("/usr/lib/libcudart.so.13"));
    CHECK_FALSE(is_driver_file("/libcuda.so.1/libother.so"));
    CHECK_FALSE(is_driver_file("/usr/lib/libcuda.software"));
    CHECK_FALSE(is_driver_file("/usr/lib/libcuda.s"));
    CHECK_FALSE(is_driver_file(""));
}

TEST_CASE("a process without a driver has none beside the interposer") {
    CHECK(find_driver_beside("/opt/emm/libcuda.so.1") == nullptr);
}

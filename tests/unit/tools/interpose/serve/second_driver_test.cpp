#include "serve/second_driver.h"

#include "catch.h"

#include <dlfcn.h>

using namespace emm::run;

namespace {

const std::string interposer = "/usr/lib/emm/run/libcuda.so.1";
const std::string driver = "/usr/lib/x86_64-linux-gnu/libcuda.so.580.159";

std::string mapped(const std::string &path, const char *offset = "00000000") {
    return std::string("7f12a8000000-7f12a8021000 r--p ") + offset + " 00:2f 4711      " + path +
           "\n";
}

std::string found_in(const std::string &maps) {
    return second_driver(mapped("/usr/bin/python3.11") + mapped(interposer) +
                             "7f12a9000000-7f12a9021000 rw-p 00000000 00:00 0 \n" + maps,
                         interposer, driver);
}

} // namespace

TEST_CASE("the driver behind the interposer is no second one") {
    CHECK(found_in(mapped(driver) + mapped(driver, "00021000")).empty());
    CHECK(found_in("").empty());
}

TEST_CASE("another file with a driver's name is a second driver") {
    CHECK(found_in(mapped(driver) + mapped("/opt/a b/libcuda.so.1")) == "/opt/a b/libcuda.so.1");
    CHECK(found_in(mapped("/opt/libcuda.so.550.54")) == "/opt/libcuda.so.550.54");
}

TEST_CASE("the driver that is loaded twice is a second one") {
    CHECK(found_in(mapped(driver) + mapped(driver)) == driver);
}

TEST_CASE("a library whose name only resembles the driver's is none") {
    CHECK(found_in(mapped("/usr/lib/libcudart.so.12") + mapped("/usr/lib/libcudadebugger.so.1") +
                   mapped("libcuda.so.1"))
              .empty());
}

TEST_CASE("libraries count as loaded once, and again when one more is") {
    has_loaded_libraries();
    CHECK_FALSE(has_loaded_libraries());
    void *const library = dlopen("libanl.so.1", RTLD_NOW);
    REQUIRE(library);
    CHECK(has_loaded_libraries());
    CHECK_FALSE(has_loaded_libraries());
    dlclose(library);
}

#include "catch.h"
#include "spec.h"

using namespace emm::tool;

TEST_CASE("relative paths on the command line become absolute, and all else stays") {
    const auto in_folder = [](const char *specs) { return with_absolute_paths(specs, "/a/b"); };
    CHECK(in_folder("./libemm-x.so") == "/a/b/libemm-x.so");
    CHECK(in_folder("../x.so:max=1GiB,file=./y") == "/a/x.so:max=1GiB,file=./y");
    CHECK(in_folder("count+fault:file=./y+./x.so:max=1") == "count+fault:file=./y+/a/b/x.so:max=1");
    CHECK(in_folder("./c++/x.so") == "/a/b/c++/x.so");
    CHECK(in_folder("pool;x/y.so;./z.so") == "pool;/a/b/x/y.so;/a/b/z.so");
    for (const char *same :
         {"", "pool", "pool:file=./x", "/x/../y.so", "libemm-x.so", ";", "a;;b"}) {
        CHECK(in_folder(same) == same);
    }
}

TEST_CASE("a folder whose name separates specs is written so that it does not") {
    CHECK(with_absolute_paths("./x.so", "/a;b:c%") == "/a%3Bb%3Ac%25/x.so");
}

TEST_CASE("specs with a separator are a list") {
    CHECK(is_list("a;b"));
    CHECK_FALSE(is_list("a%3Bb"));
}

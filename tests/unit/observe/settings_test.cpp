#include "observe/settings.h"

#include "catch.h"

#include <cstdint>

using namespace emm::observe;

TEST_CASE(
    "every variable of words or numbers tells what it expects, what it found and what holds") {
    for (const char *const name : settings()) {
        CAPTURE(name);
        CHECK(complaint_about(name, "").empty());
        CHECK_THAT(complaint_about(name, "yes"),
                   ContainsSubstring("expected ") && ContainsSubstring(", found 'yes'; "));
    }
    CHECK(complaint_about("EMM_TOP", "yes") == "expected on or off, found 'yes'; it is on");
    CHECK(
        complaint_about("EMM_TRACK", "yes") ==
        "expected module or stack, with :sample=1/N behind it or nothing (N up to 1000000), found "
        "'yes'; nothing is tracked");
}

TEST_CASE("a value that a variable takes is no complaint") {
    const std::pair<const char *, const char *> good[] = {
        {"EMM_TRACK", "stack:sample=1/10"},
        {"EMM_OOM_REPORT", "off"},
        {"EMM_OOM_REPORT", "page:/var/tmp"},
        {"EMM_STATS", "exit"},
        {"EMM_TOP", "on"},
        {"EMM_DRIVER_METER", "1"},
        {"EMM_MAX_PENDING_DEALLOCS_COUNT", "18446744073709551615"},
        {"EMM_MAX_PENDING_DEALLOCS_RATIO", "0.5"},
        {"EMM_IPC_STAGED", "0"},
        {"EMM_ALLOW_UNTRUSTED", "1"},
        {"EMM_LOG", "info:/tmp/emm.log"},
        {"EMM_PLUGIN_PATH", "/a::/b"},
    };
    for (const auto &[name, value] : good) {
        CAPTURE(name);
        CHECK(complaint_about(name, value).empty());
    }
}

TEST_CASE("levels and folders that make no sense are complained about, files and plugins are not") {
    CHECK_THAT(complaint_about("EMM_LOG", "loud:/tmp/x"), ContainsSubstring("warn is used"));
    CHECK_THAT(complaint_about("EMM_LOG", "info:"), ContainsSubstring("perhaps :FILE"));
    for (const char *const text : {":", ":/tmp/emm.log", "info,", ",info"}) {
        CAPTURE(text);
        CHECK_THAT(complaint_about("EMM_LOG", text), ContainsSubstring("warn is used"));
    }
    CHECK_THAT(complaint_about("EMM_PLUGIN_PATH", "/a:b"), ContainsSubstring("found '/a:b'"));
    CHECK(complaint_about("EMM_PLUGIN", "yes").empty());
    CHECK(complaint_about("EMM_EVENT_LOG", "yes").empty());
}

TEST_CASE("a complaint is one line of bounded length, whatever the value is") {
    CHECK_THAT(complaint_about("EMM_TOP", "a\n\x1b[31m"),
               !ContainsSubstring("\x1b") && !ContainsSubstring("\n"));
    CHECK(complaint_about("EMM_TOP", std::string(1'000'000, 'x')).size() < 5000);
}

TEST_CASE("a variable whose name is nearly one of emm's leads to that one, and no other does") {
    CHECK(complaint_about_name("EMM_PLUGN") ==
          "is not a variable of emm; did you mean 'EMM_PLUGIN'?");
    CHECK_THAT(complaint_about_name("EMM_Track"), ContainsSubstring("did you mean 'EMM_TRACK'?"));
    for (const char *const name : {"EMM_PLUGIN", "EMM_SIM", "EMM_EVENT_LOG", "EMM_LIBRARY", "EMM_",
                                   "EMM", "EMM_TOOL", "EMM_TEST_TORCH", "PLUGN", "GEMM_PLUGN"}) {
        CAPTURE(name);
        CHECK(complaint_about_name(name).empty());
    }
}

TEST_CASE("a number takes the whole text and keeps to its limit") {
    CHECK(number_of<uint64_t>("12", 12) == uint64_t(12));
    for (const char *const text : {"13", "-1", "1x", "x", "", " 1"}) {
        CAPTURE(text);
        CHECK_FALSE(number_of<uint64_t>(text, 12).has_value());
    }
    CHECK_FALSE(number_of<double>("nan", 1.0).has_value());
}

#include "environment.h"

#include "catch.h"

#include <string>

using namespace emm::run;

namespace {

std::string removed(const std::string &list, const char *item, const char *separators = ":") {
    std::string rest(list.size() + 1, 'x');
    const bool found = without_item(list.c_str(), item, separators, rest.data());
    return (found ? "found, " : "not found, ") + std::string(rest.c_str());
}

} // namespace

TEST_CASE("an option counts if it is one of the list, not a part of one") {
    CHECK(has_option("zero", "zero"));
    CHECK(has_option("sync-free,zero", "zero"));
    CHECK(has_option("zero,sync-free", "zero"));
    CHECK_FALSE(has_option("zeros", "zero"));
    CHECK_FALSE(has_option("sync-free", "free"));
    CHECK_FALSE(has_option("", "zero"));
    CHECK_FALSE(has_option(nullptr, "zero"));
}

TEST_CASE("an item goes from a list with one separator") {
    CHECK(removed("/a:/b:/c", "/b") == "found, /a:/c");
    CHECK(removed("/a:/b", "/a") == "found, /b");
    CHECK(removed("/a:/b", "/b") == "found, /a");
    CHECK(removed("/a", "/a") == "found, ");
    CHECK(removed("/a:/b:/a", "/a") == "found, /b");
    CHECK(removed("/a /b:/c", "/b", ": ") == "found, /a /c");
}

TEST_CASE("a list without the item stays as it is, empty items included") {
    CHECK(removed("/ab:/c", "/a") == "not found, /ab:/c");
    CHECK(removed("", "/a") == "not found, ");
    CHECK(removed("/b::/c:", "/a") == "not found, /b::/c:");
}

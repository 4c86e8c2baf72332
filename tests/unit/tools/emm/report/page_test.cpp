#include "report/page.h"

#include "catch.h"

#include <nlohmann/json.hpp>

using namespace emm::tool;

TEST_CASE("no text ends the script element that it stands in") {
    for (const char *const text : {"</script><script>alert(1)</script>", "<!--", "a & b",
                                   "\xe2\x80\xa8", "\xff\xfe", "\x1b[2J", "\"quoted\\\"", "'"}) {
        const std::string safe = script_json(Json{{"name", text}});
        CHECK(safe.find_first_of("<>&") == std::string::npos);
        for (const char character : safe) {
            CHECK((character >= 0x20 && character < 0x7f));
        }
        CHECK(Json::parse(safe).at("name").is_string());
    }
    const std::string text = "</script>&<!--";
    CHECK(Json::parse(script_json(Json(text))).get<std::string>() == text);
}

TEST_CASE("the page is whole: one place for the data, and nothing from elsewhere") {
    const std::string page = std::string(page_before_data()) + std::string(page_behind_data());
    CHECK(page.rfind("<!DOCTYPE html>", 0) == 0);
    CHECK(page.find("@") == page.find("@media")); // no mark of the build is left
    CHECK(page.find("src=") == std::string::npos);
    CHECK(page.find("http://") == std::string::npos);
    CHECK(page.find("https://") == std::string::npos);
    CHECK(page.find("innerHTML") == std::string::npos);
    CHECK(page_before_data().ends_with("id=\"data\">"));
}

TEST_CASE("bytes become base64 as RFC 4648 has it") {
    const auto text = [](const char *bytes) {
        return in_base64(
            std::vector<uint8_t>(bytes, bytes + std::char_traits<char>::length(bytes)));
    };
    CHECK(text("").empty());
    CHECK(text("f") == "Zg==");
    CHECK(text("fo") == "Zm8=");
    CHECK(text("foo") == "Zm9v");
    CHECK(text("foobar") == "Zm9vYmFy");
    CHECK(in_base64({0xff, 0xfe, 0xfd, 0}) == "//79AA==");
}

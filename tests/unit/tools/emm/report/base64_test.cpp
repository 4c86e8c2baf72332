#include "catch.h"
#include "report/base64.h"

using namespace emm::tool;

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

#include "catch.h"
#include "exchange/profile.h"

using namespace emm::tool;
using namespace std::string_literals;

TEST_CASE("a message has varints and bytes behind the numbers of their fields") {
    ProtobufMessage inner, message;
    inner.number(1, 150);
    message.number(1, 1);
    message.number(2, 0); // as if it were not there
    message.number(16, ~uint64_t(0));
    message.text(2, "testing");
    message.text(3, "");
    message.message(3, inner);
    message.numbers(4, {3, 270, 86942});
    message.numbers(5, {});
    message.all_texts(6, {"", "a"});
    CHECK(message.bytes() == "\x08\x01"s + "\x80\x01\xff\xff\xff\xff\xff\xff\xff\xff\xff\x01"s +
                                 "\x12\x07testing"s + "\x1a\x03\x08\x96\x01"s +
                                 "\x22\x06\x03\x8e\x02\x9e\xa7\x05"s + "\x32\x00\x32\x01\x61"s);
}

TEST_CASE("a gzip file has its bytes in stored blocks, their sum and their count") {
    const std::string head("\x1f\x8b\x08\0\0\0\0\0\0\xff", 10);
    CHECK(as_gzip("") == head + "\x01\x00\x00\xff\xff"s + std::string(8, '\0'));
    CHECK(as_gzip("123456789") ==
          head + "\x01\x09\x00\xf6\xff"s + "123456789" + "\x26\x39\xf4\xcb\x09\x00\x00\x00"s);
    const std::string large = as_gzip(std::string(0x10000, 'a'));
    CHECK(large.substr(10, 5) == "\x00\xff\xff\x00\x00"s);
    CHECK(large.substr(15 + 0xffff, 6) == "\x01\x01\x00\xfe\xff"s + "a");
}

TEST_CASE("the frames of a caller are its function, then the lines of Python") {
    const auto frames =
        frames_of(parts_of("/lib/a.so+0x12 (g(int)+0x3)\t/t.py:12 (step)\t/t.py:x (main)"));
    REQUIRE(frames.size() == 3);
    CHECK((frames[0].file == "/lib/a.so" && frames[0].function == "g(int)"));
    CHECK((frames[1].file == "/t.py" && frames[1].line == 12 && frames[1].function == "step"));
    CHECK((frames[2].line == 0 && frames[2].is_python && !frames[0].is_python));
    CHECK(frames_of(parts_of("/lib/a.so+0x12")).at(0).function == "a.so+0x12");
    CHECK(frames_of(parts_of("")).empty());
}

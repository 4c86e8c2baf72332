#include "catch.h"
#include "exchange/pickle.h"

#include <algorithm>
#include <cstring>
#include <string>

using namespace emm::tool;
using Kind = PickleValue::Kind;

namespace {

constexpr std::string_view names[] = {"kind", "list", "good"};
enum Name : uint8_t { kind_name, list_name, good_name };

struct Reading {
    explicit Reading(std::string bytes)
        : bytes(std::move(bytes)),
          pickle(
              [this](char *into, size_t most) {
                  const size_t count = std::min(most, this->bytes.size() - at);
                  std::memcpy(into, this->bytes.data() + at, count);
                  at += count;
                  return count;
              },
              names, kind_name) {}

    std::string refusal() {
        try {
            pickle.read();
        } catch (const Malformed &malformed) {
            return std::to_string(pickle.offset()) + ": " + malformed.what();
        }
        return "accepted";
    }

    std::string bytes;
    size_t at = 0;
    Pickle pickle;
};

std::string bytes(std::initializer_list<int> values) {
    std::string text;
    for (const int value : values) {
        text += static_cast<char>(value);
    }
    return text;
}

const std::string start = bytes({0x80, 4});

// {"good": what `value` makes}
std::string as_good(const std::string &value) {
    return start + "}(" + bytes({0x8c, 4}) + "good" + value + "u.";
}

PickleValue good(const std::string &value) {
    Reading reading(as_good(value));
    reading.pickle.read();
    const PickleValue *const found = reading.pickle.find(reading.pickle.root(), good_name);
    REQUIRE(found);
    return *found;
}

} // namespace

TEST_CASE("whole numbers of every width are read") {
    CHECK(good("K" + bytes({0xff})).payload == 255);
    CHECK(good("M" + bytes({0xff, 0xff})).payload == 65535);
    CHECK(static_cast<int64_t>(good("J" + bytes({0xfe, 0xff, 0xff, 0xff})).payload) == -2);
    CHECK(good("J" + bytes({0xfe, 0xff, 0xff, 0xff})).is_negative);
    CHECK(static_cast<int64_t>(good(bytes({0x8a, 1, 0x80})).payload) == -128);
    CHECK(good(bytes({0x8a, 0})).payload == 0);
    CHECK(good(bytes({0x8a, 8, 1, 0, 0, 0, 0, 0, 0, 0x70})).payload == 0x7000000000000001);
    CHECK(good(bytes({0x8a, 9, 1, 0, 0, 0, 0, 0, 0, 0x80, 0})).payload == 0x8000000000000001);
    CHECK_FALSE(good(bytes({0x8a, 9, 1, 0, 0, 0, 0, 0, 0, 0x80, 0})).is_negative);
}

TEST_CASE("what is no whole number of 64 bits is told apart from one") {
    CHECK(good(bytes({0x8a, 9, 0, 0, 0, 0, 0, 0, 0, 0, 1})).kind == Kind::real);
    CHECK(good("G" + bytes({0x7f, 0xf8, 0, 0, 0, 0, 0, 0})).kind == Kind::real);
    CHECK(good(bytes({0x88})).kind == Kind::boolean);
    CHECK(good("N").kind == Kind::none);
    CHECK(good(bytes({0x8c, 2}) + "ab").kind == Kind::text);
    CHECK(good(bytes({0x8c, 4}) + "list").kind == Kind::name);
}

TEST_CASE("a list keeps containers, and what a memo holds comes again") {
    Reading reading(as_good("](" + bytes({0x8c, 4}) + "good" + "]q" + bytes({0}) + "h" +
                            bytes({0}) + "}K" + bytes({1}) + "e"));
    reading.pickle.read();
    const PickleValue &list = *reading.pickle.find(reading.pickle.root(), good_name);
    REQUIRE(list.kind == Kind::list);
    REQUIRE(reading.pickle.list(list).size() == 2); // a list, and the same again
    CHECK(reading.pickle.list(list)[0].payload == reading.pickle.list(list)[1].payload);
}

TEST_CASE("a dictionary of an unknown kind counts as empty") {
    const std::string kind = bytes({0x8c, 4}) + "kind";
    const std::string rest = bytes({0x8c, 4}) + "goodK" + bytes({1}) + "u";
    Reading reading(as_good("](" + ("}(" + kind + bytes({0x8c, 1}) + "x" + rest) + "}(" + kind +
                            bytes({0x8c, 4}) + "list" + rest + "e"));
    reading.pickle.read();
    const PickleValue &list = *reading.pickle.find(reading.pickle.root(), good_name);
    CHECK(reading.pickle.list(list).size() == 1);
}

TEST_CASE("an opcode that could call something is refused by its name and place") {
    const auto refusal = [](const std::string &text) { return Reading(text).refusal(); };
    const std::string sentence = ": expected the opcodes of a snapshot, which call nothing, found ";
    CHECK(refusal(start + "cos\nsystem\n") == "2" + sentence + "GLOBAL");
    CHECK(refusal(start + "]R") == "3" + sentence + "REDUCE");
    CHECK(refusal(start + bytes({0x93})) == "2" + sentence + "STACK_GLOBAL");
    CHECK(refusal(start + "N" + bytes({0x81})) == "3" + sentence + "NEWOBJ");
    CHECK(refusal(start + "}b") == "3" + sentence + "BUILD");
    CHECK(refusal(start + "(i") == "3" + sentence + "INST");
    CHECK(refusal(start + "P1\n") == "2" + sentence + "PERSID");
    CHECK(refusal(start + bytes({0x82, 1})) == "2" + sentence + "EXT1");
    CHECK(refusal(start + bytes({0xfe})) == "2" + sentence + "the byte 0xfe");
}

TEST_CASE("an opcode of old protocols is refused, and no call is spoken of") {
    CHECK(Reading(start + "I1\n").refusal() == "2: expected the opcodes of a snapshot, found INT");
    CHECK(Reading(start + "N0").refusal() == "3: expected the opcodes of a snapshot, found POP");
}

TEST_CASE("sets, bytes and long numbers are read") {
    const std::string name = bytes({0x8c, 4}) + "good";
    const std::string content = bytes({4, 0, 0, 0}) + "good",
                      wide = bytes({4, 0, 0, 0, 0, 0, 0, 0});
    CHECK(good("C" + bytes({4}) + "good").kind == Kind::text);
    CHECK(good("B" + content).kind == Kind::text);
    CHECK(good(bytes({0x8e}) + wide + "good").kind == Kind::text);
    CHECK(good(bytes({0x96}) + wide + "good").kind == Kind::text);
    CHECK(good(bytes({0x8f}) + "(" + name + bytes({0x90})).kind == Kind::list);
    CHECK(good("(" + name + bytes({0x91})).kind == Kind::list);
    CHECK(good(bytes({0x8b, 2, 0, 0, 0, 1, 2})).payload == 0x201);
}

TEST_CASE("of entries with one key the last counts, and takes the memory of one") {
    std::string many;
    for (int i = 0; i < 100; i++) {
        many += bytes({0x8c, 4}) + "goodK" + bytes({i});
    }
    Reading reading(start + "}(" + many + "u.");
    reading.pickle.read();
    CHECK(reading.pickle.find(reading.pickle.root(), good_name)->payload == 99);
    CHECK(reading.pickle.values() == 1);
}

TEST_CASE("a pickle that no pickler writes is refused") {
    const auto refusal = [](const std::string &text) { return Reading(text).refusal(); };
    CHECK(refusal("") == "0: expected a pickle that is whole, found its end before STOP");
    CHECK(refusal(bytes({0x80, 6})) == "0: expected protocol 2 to 5, found 6");
    CHECK(refusal(start + ".") == "2: expected one value at the end, found 0");
    CHECK(refusal(start + "NN.") == "4: expected one value at the end, found 2");
    CHECK(refusal(start + "e") == "2: expected a MARK before it, found none");
    CHECK(refusal(start + "(e") == "3: expected a list to append to, found none");
    CHECK(refusal(start + "a") == "2: expected a list to append to, found none");
    CHECK(refusal(start + "](Na") == "5: expected a list to append to, found none");
    CHECK(refusal(start + "](" + bytes({0x85})) == "4: expected a value before it, found none");
    CHECK(refusal(start + "}(Nu") ==
          "5: expected a dictionary, keys and values, found other values");
    CHECK(refusal(start + "s") == "2: expected a dictionary, keys and values, found other values");
    CHECK(refusal(start + "h" + bytes({7})) == "2: expected what the memo has, found number 7");
    CHECK(refusal(start + "Nr" + bytes({0xff, 0xff, 0xff, 0xff})) ==
          "3: expected the number 0 in the memo, found 4294967295");
    CHECK(refusal(start + "X" + bytes({0xff, 0xff, 0xff, 0xff}) + "abc") ==
          "2: expected a pickle that is whole, found its end before STOP");
    CHECK(refusal(start + std::string(300, '(')) ==
          "302: expected a pickle that is whole, found its end before STOP");
}

TEST_CASE("nesting is no recursion: a list may hold itself") {
    Reading reading(as_good("]q" + bytes({0}) + "h" + bytes({0}) + "a"));
    reading.pickle.read();
    const PickleValue &list = *reading.pickle.find(reading.pickle.root(), good_name);
    CHECK(reading.pickle.list(list).front().payload == list.payload);
}

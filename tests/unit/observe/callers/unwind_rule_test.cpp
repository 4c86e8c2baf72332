#include "observe/callers/unwind_rule.h"

#include "catch.h"

#include <cstring>
#include <vector>

using namespace emm::observe;

namespace {

using Bytes = std::vector<uint8_t>;

void put(Bytes &bytes, uint32_t number) {
    const size_t at = bytes.size();
    bytes.resize(at + sizeof number);
    std::memcpy(bytes.data() + at, &number, sizeof number);
}

// A section with one common entry and one for a function at 0x1000, as a compiler lays them out.
struct Section {
    Bytes bytes;
    size_t entry = 0;

    Section(const char *letters, const Bytes &data, const Bytes &common, const Bytes &own) {
        Bytes body;
        put(body, 0);
        body.push_back(1);
        body.insert(body.end(), letters, letters + std::strlen(letters) + 1);
        body.insert(body.end(), {1, 0x78, return_column});
        if (*letters == 'z') {
            body.push_back(uint8_t(data.size()));
            body.insert(body.end(), data.begin(), data.end());
        }
        body.insert(body.end(), common.begin(), common.end());
        append(body);
        entry = bytes.size();
        body.clear();
        put(body, uint32_t(entry + 4)); // from here back to the common entry
        put(body, 0);
        put(body, 0x100);
        if (*letters == 'z') {
            body.push_back(0);
        }
        body.insert(body.end(), own.begin(), own.end());
        append(body);
    }
    void append(const Bytes &body) {
        put(bytes, uint32_t(body.size()));
        bytes.insert(bytes.end(), body.begin(), body.end());
    }
    UnwindRule at(uintptr_t offset) const {
        return rule_from_entry(bytes.data() + entry, 0x1000, 0x1000 + offset);
    }

#if defined(__x86_64__)
    static constexpr uint8_t return_column = 16, stack = 7, frame = 6;
#else
    static constexpr uint8_t return_column = 30, stack = 31, frame = 29;
#endif
};

constexpr uint8_t four_bytes_relative = 0x1b, def_cfa = 0x0c, def_cfa_offset = 0x0e,
                  def_cfa_register = 0x0d, offset = 0x80, restore = 0xc0, advance = 0x40,
                  remember = 0x0a, recall = 0x0b, undefined = 0x07, expression = 0x0f,
                  saved_anywhere = 0x05, restore_any = 0x06, same_value = 0x08, in_register = 0x09,
                  saved_signed = 0x11, def_cfa_signed = 0x12, def_cfa_offset_signed = 0x13,
                  is_value = 0x16, arguments_pushed = 0x2e;

#if defined(__x86_64__)
const Bytes at_entry = {def_cfa, Section::stack, 8, uint8_t(offset | Section::return_column), 1};
#else
const Bytes at_entry = {def_cfa, Section::stack,
                        16,      uint8_t(offset | Section::return_column),
                        1,       uint8_t(offset | Section::frame),
                        2};
#endif

} // namespace

TEST_CASE("a rule holds from its place to the next one's") {
    const Section section(
        "zR", {four_bytes_relative}, at_entry,
        {uint8_t(advance | 1), def_cfa_offset, 32, uint8_t(advance | 8), def_cfa_offset, 64});
    CHECK(section.at(0).cfa == UnwindRule::Cfa::from_sp);
    CHECK(section.at(1).cfa_offset == 32);
    CHECK(section.at(8).cfa_offset == 32);
    CHECK(section.at(9).cfa_offset == 64);
    CHECK(section.at(200).cfa_offset == 64);
}

TEST_CASE("a frame pointer, and what is remembered over an early return") {
    const Section section("zR", {four_bytes_relative}, at_entry,
                          {uint8_t(advance | 1), def_cfa_offset, 16,
                           uint8_t(offset | Section::frame), 2, def_cfa_register, Section::frame,
                           uint8_t(advance | 1), remember, def_cfa, Section::stack, 8,
                           uint8_t(restore | Section::frame), uint8_t(advance | 1), recall});
    const UnwindRule inside = section.at(1);
    CHECK((inside.cfa == UnwindRule::Cfa::from_fp && inside.cfa_offset == 16 && inside.saves_fp));
    CHECK(section.at(2).cfa == UnwindRule::Cfa::from_sp);
    CHECK(section.at(2).saves_fp == section.at(0).saves_fp);
    CHECK(section.at(3) == inside);
}

TEST_CASE("the long and the signed form of an instruction say the same as the short one") {
    const auto rule_of = [](const Bytes &own) {
        return Section("zR", {four_bytes_relative}, at_entry, own).at(0);
    };
    const UnwindRule saved = rule_of({def_cfa_offset, 32, uint8_t(offset | Section::frame), 2});
    REQUIRE((saved.cfa_offset == 32 && saved.saves_fp));
    const uint8_t minus_4 = 0x7c; // LEB128, in units of -8 bytes
    CHECK(rule_of({def_cfa_offset_signed, minus_4, saved_anywhere, Section::frame, 2}) == saved);
    CHECK(rule_of({def_cfa_signed, Section::stack, minus_4, saved_signed, Section::frame, 2}) ==
          saved);
    CHECK(rule_of({def_cfa_offset, 32, uint8_t(offset | Section::frame), 2, arguments_pushed, 8}) ==
          saved);
    const UnwindRule restored =
        rule_of({uint8_t(offset | Section::frame), 2, uint8_t(restore | Section::frame)});
    CHECK(rule_of({uint8_t(offset | Section::frame), 2, restore_any, Section::frame}) == restored);
#if defined(__x86_64__) // elsewhere the frame pointer is saved on entry
    CHECK(rule_of({uint8_t(offset | Section::frame), 2, same_value, Section::frame}) == restored);
#endif
}

TEST_CASE("a frame pointer that lies in a register, or is computed, makes a place unknown") {
    for (const Bytes &own :
         {Bytes{in_register, Section::frame, 3}, Bytes{is_value, Section::frame, 1, 0x30}}) {
        CHECK(Section("zR", {four_bytes_relative}, at_entry, own).at(0) == UnwindRule());
    }
}

TEST_CASE("a personality's address has the size that its encoding says") {
    const auto rule_with = [](Bytes personality) {
        personality.push_back(four_bytes_relative);
        return Section("zPR", personality, at_entry, {def_cfa_offset, 32}).at(0);
    };
    const UnwindRule plain =
        Section("zR", {four_bytes_relative}, at_entry, {def_cfa_offset, 32}).at(0);
    CHECK(rule_with({0x00, 1, 2, 3, 4, 5, 6, 7, 8}) == plain);        // a whole address
    CHECK(rule_with({0x0a, 1, 2}) == plain);                          // two bytes
    CHECK(Section("zR", {0x01}, at_entry, {}).at(0) == UnwindRule()); // LEB128: no fixed size
}

TEST_CASE("personality and language data are passed over") {
    const Section section("zPLR", {0x9b, 1, 2, 3, 4, four_bytes_relative, four_bytes_relative},
                          at_entry, {});
    CHECK(section.at(0).cfa == UnwindRule::Cfa::from_sp);
}

TEST_CASE("where a thread begins there is no caller") {
    const Section section("zR", {four_bytes_relative}, at_entry,
                          {undefined, Section::return_column});
    CHECK(section.at(0) == UnwindRule());
}

TEST_CASE("what no rule can say is unknown") {
    const UnwindRule unknown;
    CHECK(Section("zRS", {four_bytes_relative}, at_entry, {}).at(0) == unknown); // a signal's frame
    CHECK(Section("zRx", {four_bytes_relative}, at_entry, {}).at(0) == unknown); // a new letter
    CHECK(Section("eh", {}, at_entry, {}).at(0) == unknown);                     // of GCC 2
    CHECK(Section("zR", {four_bytes_relative}, at_entry, {def_cfa, 3, 8}).at(0) == unknown);
    CHECK(Section("zR", {four_bytes_relative}, at_entry, {0x3f}).at(0) == unknown);
    CHECK(Section("zR", {four_bytes_relative}, at_entry, {recall}).at(0) == unknown);
    CHECK(Section("zR", {four_bytes_relative}, at_entry, {def_cfa_offset, 12}).at(0) == unknown);
    CHECK(Section("zR", {four_bytes_relative}, at_entry, {expression, 2, 0x91, 0}).at(0) ==
          unknown);
}

TEST_CASE("an entry that is cut short ends within its bytes") {
    for (const Bytes &own :
         {Bytes{expression, 200}, Bytes{def_cfa}, Bytes{0x04, 1}, Bytes{0x10, 6}}) {
        const Section section("zR", {four_bytes_relative}, at_entry, own);
        section.at(100); // a sanitizer sees reads behind it
    }
    SUCCEED();
}

TEST_CASE("a rule is the same after it was packed into 31 bits, or unknown") {
    UnwindRule rule;
    for (const auto cfa :
         {UnwindRule::Cfa::from_sp, UnwindRule::Cfa::from_fp, UnwindRule::Cfa::at_fp}) {
        for (const int32_t bytes : {-65'528, -16, -8, 0, 8, 16, 4096, 65'528}) {
            rule = {cfa, bytes > 0, bytes, -bytes};
            CHECK(unpacked(packed(rule)) == rule);
            CHECK(packed(rule) >> 31 == 0);
        }
    }
    rule.cfa_offset = 65'536;
    CHECK(unpacked(packed(rule)) == UnwindRule());
    rule = UnwindRule();
    CHECK(unpacked(packed(rule)) == rule);
}

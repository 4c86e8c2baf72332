#include "exchange/pickle.h"

#include <algorithm>
#include <array>
#include <fmt/format.h>
#include <utility>

namespace emm::tool::opcode {
namespace {

// Opcodes that snapshots do not have.
constexpr Other others[] = {{'0', "POP", false},
                            {'1', "POP_MARK", false},
                            {'2', "DUP", false},
                            {'F', "FLOAT", false},
                            {'I', "INT", false},
                            {'L', "LONG", false},
                            {'S', "STRING", false},
                            {'T', "BINSTRING", false},
                            {'U', "SHORT_BINSTRING", false},
                            {'V', "UNICODE", false},
                            {'P', "PERSID", true},
                            {'Q', "BINPERSID", true},
                            {'R', "REDUCE", true},
                            {'b', "BUILD", true},
                            {'c', "GLOBAL", true},
                            {'d', "DICT", false},
                            {'g', "GET", false},
                            {'i', "INST", true},
                            {'l', "LIST", false},
                            {'o', "OBJ", true},
                            {'p', "PUT", false},
                            {0x81, "NEWOBJ", true},
                            {0x82, "EXT1", true},
                            {0x83, "EXT2", true},
                            {0x84, "EXT4", true},
                            {0x92, "NEWOBJ_EX", true},
                            {0x93, "STACK_GLOBAL", true},
                            {0x97, "NEXT_BUFFER", true},
                            {0x98, "READONLY_BUFFER", true}};

} // namespace

const Other *find_other(uint8_t code) {
    for (const Other &other : others) {
        if (other.code == code) {
            return &other;
        }
    }
    return nullptr;
}

} // namespace emm::tool::opcode

namespace emm::tool {

Pickle::Pickle(Source source, std::span<const std::string_view> names, uint8_t kind,
               bool keeps_texts)
    : source_(std::move(source)), names_(names), kind_(kind), keeps_texts_(keeps_texts), texts_(1),
      buffer_(1 << 16), entries_(1) {}

void Pickle::read() {
    do {
        opcode_at_ = before_ + at_;
    } while (step(byte()));
    if (stack_.size() != 1 || !marks_.empty()) {
        throw Malformed("one value at the end", fmt::format("{}", stack_.size()));
    }
    root_ = stack_.front();
}

const PickleValue *Pickle::find(const PickleValue &dictionary, uint8_t name) const {
    for (uint32_t at = dictionaries_[dictionary.payload]; at != 0; at = entries_[at].next) {
        if (entries_[at].key == name) {
            return &entries_[at];
        }
    }
    return nullptr;
}

bool Pickle::step(uint8_t code) {
    using Run = void (*)(Pickle &);
    static constexpr struct {
        uint8_t code;
        Run run;
    } rows[] = {
        // values without parts
        {opcode::proto, [](Pickle &self) { self.protocol(self.byte()); }},
        {opcode::frame, [](Pickle &self) { self.little_endian(8); }},
        {opcode::none, [](Pickle &self) { self.push(Kind::none); }},
        {opcode::new_true, [](Pickle &self) { self.push(Kind::boolean, 1); }},
        {opcode::new_false, [](Pickle &self) { self.push(Kind::boolean, 0); }},
        {opcode::bin_int, [](Pickle &self) { self.integer(4, true); }},
        {opcode::bin_int1, [](Pickle &self) { self.integer(1, false); }},
        {opcode::bin_int2, [](Pickle &self) { self.integer(2, false); }},
        {opcode::long1, [](Pickle &self) { self.long_integer(self.byte()); }},
        {opcode::long4, [](Pickle &self) { self.long_integer(self.little_endian(4)); }},
        {opcode::bin_float, [](Pickle &self) { self.push(Kind::real, self.little_endian(8)); }},
        {opcode::short_bin_unicode, [](Pickle &self) { self.text(self.byte()); }},
        {opcode::bin_unicode, [](Pickle &self) { self.text(self.little_endian(4)); }},
        {opcode::bin_unicode8, [](Pickle &self) { self.text(self.little_endian(8)); }},
        {opcode::short_bin_bytes, [](Pickle &self) { self.byte_text(self.byte()); }},
        {opcode::bin_bytes, [](Pickle &self) { self.byte_text(self.little_endian(4)); }},
        {opcode::bin_bytes8, [](Pickle &self) { self.byte_text(self.little_endian(8)); }},
        {opcode::byte_array8, [](Pickle &self) { self.byte_text(self.little_endian(8)); }},
        // containers
        {opcode::mark, [](Pickle &self) { self.put_mark(); }},
        {opcode::empty_dict, [](Pickle &self) { self.open_dictionary(); }},
        {opcode::empty_list, [](Pickle &self) { self.tuple(0); }},
        {opcode::empty_tuple, [](Pickle &self) { self.tuple(0); }},
        {opcode::empty_set, [](Pickle &self) { self.tuple(0); }},
        {opcode::op_append, [](Pickle &self) { self.append(self.stack_.size() - 1); }},
        {opcode::appends, [](Pickle &self) { self.append(self.take_mark()); }},
        {opcode::add_items, [](Pickle &self) { self.append(self.take_mark()); }},
        {opcode::set_item, [](Pickle &self) { self.set_items(self.stack_.size() - 2); }},
        {opcode::op_set_items, [](Pickle &self) { self.set_items(self.take_mark()); }},
        {opcode::op_tuple, [](Pickle &self) { self.tuple(self.stack_.size() - self.take_mark()); }},
        {opcode::frozen_set,
         [](Pickle &self) { self.tuple(self.stack_.size() - self.take_mark()); }},
        {opcode::tuple1, [](Pickle &self) { self.tuple(1); }},
        {opcode::tuple2, [](Pickle &self) { self.tuple(2); }},
        {opcode::tuple3, [](Pickle &self) { self.tuple(3); }},
        // the memo
        {opcode::memoize, [](Pickle &self) { self.remember(self.memo_.size()); }},
        {opcode::bin_put, [](Pickle &self) { self.remember(self.byte()); }},
        {opcode::long_bin_put, [](Pickle &self) { self.remember(self.little_endian(4)); }},
        {opcode::bin_get, [](Pickle &self) { self.recall(self.byte()); }},
        {opcode::long_bin_get, [](Pickle &self) { self.recall(self.little_endian(4)); }},
    };
    static constexpr auto by_code = [] {
        std::array<Run, 256> all = {};
        for (const auto &row : rows) {
            all[row.code] = row.run;
        }
        return all;
    }();
    if (code == opcode::stop) {
        return false;
    }
    by_code[code] ? by_code[code](*this) : refuse(code);
    return true;
}

void Pickle::refuse(uint8_t code) const {
    const opcode::Other *const other = opcode::find_other(code);
    throw Malformed(other && !other->calls ? "the opcodes of a snapshot"
                                           : "the opcodes of a snapshot, which call nothing",
                    other ? other->name : fmt::format("the byte {:#04x}", code));
}

void Pickle::protocol(uint8_t version) {
    if (version < 2 || version > 5) {
        throw Malformed("protocol 2 to 5", std::to_string(version));
    }
}

void Pickle::fill() {
    before_ += filled_;
    at_ = 0;
    filled_ = source_(buffer_.data(), buffer_.size());
    if (filled_ == 0) {
        throw Malformed("a pickle that is whole", "its end before STOP");
    }
}

uint8_t Pickle::byte() {
    if (at_ == filled_) {
        fill();
    }
    return static_cast<uint8_t>(buffer_[at_++]);
}

uint64_t Pickle::little_endian(size_t bytes) {
    uint64_t value = 0;
    for (size_t i = 0; i < bytes; i++) {
        value |= uint64_t(byte()) << 8 * i;
    }
    return value;
}

void Pickle::skip(uint64_t bytes) {
    while (bytes > 0) {
        if (at_ == filled_) {
            fill();
        }
        const uint64_t here = std::min<uint64_t>(bytes, filled_ - at_);
        at_ += here;
        bytes -= here;
    }
}

void Pickle::expect_room() const {
    if (values_ + stack_.size() + marks_.size() >= most_values) {
        throw Malformed(fmt::format("at most {} values", most_values), "one more");
    }
}

void Pickle::count_value() {
    expect_room();
    ++values_;
}

void Pickle::push(Kind kind, uint64_t payload, bool is_negative) {
    expect_room();
    PickleValue value;
    value.kind = kind;
    value.payload = payload;
    value.is_negative = is_negative;
    stack_.push_back(value);
}

// Values below a mark belong to another container.
PickleValue Pickle::pop() {
    if (stack_.size() <= (marks_.empty() ? 0 : marks_.back())) {
        throw Malformed("a value before it", "none");
    }
    const PickleValue value = stack_.back();
    stack_.pop_back();
    return value;
}

void Pickle::integer(size_t bytes, bool is_signed) {
    const uint64_t value = little_endian(bytes);
    const bool is_negative = is_signed && value >> (8 * bytes - 1) != 0;
    push(Kind::integer, is_negative ? value | ~uint64_t(0) << 8 * bytes : value, is_negative);
}

// Python's own integers have no limit; an integer of more than 64 bits is no number here.
void Pickle::long_integer(uint64_t bytes) {
    uint64_t value = 0;
    uint8_t last = 0;
    bool fits = true;
    for (uint64_t i = 0; i < bytes; i++) {
        last = byte();
        value |= i < 8 ? uint64_t(last) << 8 * i : 0;
        fits = fits && (i < 8 || last == 0);
    }
    const bool is_negative = last >= 0x80;
    if (is_negative && bytes < 8) {
        value |= ~uint64_t(0) << 8 * bytes;
    }
    push(fits ? Kind::integer : Kind::real, value, is_negative);
}

void Pickle::text(uint64_t bytes) {
    constexpr uint64_t longest_name = 32;
    std::array<char, longest_text> content;
    const uint64_t held = std::min<uint64_t>(bytes, keeps_texts_ ? longest_text : longest_name);
    for (uint64_t i = 0; i < held; i++) {
        content[i] = static_cast<char>(byte());
    }
    skip(bytes - held);
    const std::string_view word(content.data(), held);
    const auto found =
        bytes > longest_name ? names_.end() : std::find(names_.begin(), names_.end(), word);
    if (found != names_.end()) {
        push(Kind::name, static_cast<uint64_t>(found - names_.begin()));
    } else {
        push(Kind::text, keeps_texts_ ? text_number(word) : 0);
    }
}

// Number 0 is "".
uint64_t Pickle::text_number(std::string_view word) {
    const auto known = text_numbers_.find(word);
    if (known != text_numbers_.end()) {
        return known->second;
    }
    count_value();
    texts_.emplace_back(word);
    return text_numbers_[texts_.back()] = texts_.size() - 1;
}

std::string_view Pickle::text_of(const PickleValue &value) const {
    return value.kind == Kind::name   ? names_[value.payload]
           : value.kind == Kind::text ? texts_[value.payload]
                                      : std::string_view();
}

void Pickle::byte_text(uint64_t bytes) {
    skip(bytes);
    push(Kind::text);
}

void Pickle::open_dictionary() {
    push(Kind::dictionary, dictionaries_.size());
    dictionaries_.push_back(0);
}

// A list or a set at the beginning has no parts.
void Pickle::tuple(size_t count) {
    std::vector<PickleValue> parts;
    for (size_t i = 0; i < count; i++) {
        keep(parts, pop());
    }
    std::reverse(parts.begin(), parts.end());
    count_value();
    push(Kind::list, lists_.size());
    lists_.push_back(std::move(parts));
}

void Pickle::remember(uint64_t number) {
    if (number > memo_.size()) {
        throw Malformed(fmt::format("the number {} in the memo", memo_.size()),
                        std::to_string(number));
    }
    const PickleValue value = pop();
    stack_.push_back(value);
    if (number < memo_.size()) {
        memo_[number] = value;
    } else {
        count_value();
        memo_.push_back(value);
    }
}

void Pickle::recall(uint64_t number) {
    if (number >= memo_.size()) {
        throw Malformed("what the memo has", fmt::format("number {}", number));
    }
    push(Kind::none);
    stack_.back() = memo_[number];
}

void Pickle::put_mark() {
    expect_room();
    marks_.push_back(stack_.size());
}

size_t Pickle::take_mark() {
    if (marks_.empty()) {
        throw Malformed("a MARK before it", "none");
    }
    const size_t first = marks_.back();
    marks_.pop_back();
    return first;
}

void Pickle::keep(std::vector<PickleValue> &list, const PickleValue &value) {
    const bool is_empty = value.kind == Kind::dictionary && dictionaries_[value.payload] == 0;
    if (!is_empty && (value.kind == Kind::dictionary || value.kind == Kind::list)) {
        count_value();
        list.push_back(value);
    }
}

// To the list below them.
void Pickle::append(size_t first) {
    const size_t lowest = marks_.empty() ? 0 : marks_.back();
    if (first > stack_.size() || first < lowest + 1 || stack_[first - 1].kind != Kind::list) {
        throw Malformed("a list to append to", "none");
    }
    std::vector<PickleValue> &list = lists_[stack_[first - 1].payload];
    for (size_t i = first; i < stack_.size(); i++) {
        keep(list, stack_[i]);
    }
    stack_.resize(first);
}

void Pickle::set_items(size_t first) {
    const size_t lowest = marks_.empty() ? 0 : marks_.back();
    if (first > stack_.size() || first < lowest + 1 || stack_[first - 1].kind != Kind::dictionary ||
        (stack_.size() - first) % 2 != 0) {
        throw Malformed("a dictionary, keys and values", "other values");
    }
    uint32_t &last = dictionaries_[stack_[first - 1].payload];
    if (is_of_known_kind(first)) {
        for (size_t i = first; i < stack_.size(); i += 2) {
            add_entry(last, stack_[i], stack_[i + 1]);
        }
    }
    stack_.resize(first);
}

bool Pickle::is_of_known_kind(size_t first) const {
    for (size_t i = first; i < stack_.size(); i += 2) {
        if (stack_[i].kind == Kind::name && stack_[i].payload == kind_) {
            return stack_[i + 1].kind == Kind::name;
        }
    }
    return true;
}

void Pickle::add_entry(uint32_t &last, const PickleValue &key, const PickleValue &value) {
    if (key.kind != Kind::name) {
        return;
    }
    PickleValue entry = value;
    entry.key = static_cast<uint8_t>(key.payload);
    for (uint32_t at = last; at != 0; at = entries_[at].next) {
        if (entries_[at].key == entry.key) {
            entry.next = entries_[at].next;
            entries_[at] = entry;
            return;
        }
    }
    count_value();
    entry.next = std::exchange(last, static_cast<uint32_t>(entries_.size()));
    entries_.push_back(entry);
}

} // namespace emm::tool

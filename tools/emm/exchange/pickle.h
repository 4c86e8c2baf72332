// Reads pickles of dictionaries, lists, tuples, texts and numbers, as PyTorch writes snapshots:
// with Python's pickle module, protocol 2 to 5, or with its own Pickler. A pickle is a program;
// every opcode that could call anything is refused, and so is all that no snapshot needs.
//
// Of a dictionary the entries stay whose keys are among the names that the caller knows, and of a
// list what holds something then: the call stacks of a snapshot are most of it, and are of no use
// here. Memory grows with the entries that stay, up to a limit.
#pragma once

#include "trace/builder.h"

#include <cstdint>
#include <deque>
#include <functional>
#include <span>
#include <string_view>
#include <vector>

namespace emm::tool {

struct PickleValue {
    enum class Kind : uint8_t { none, boolean, integer, real, name, text, list, dictionary };

    uint64_t payload = 0; // an integer, the number of a name, a list or a dictionary
    Kind kind = Kind::none;
    bool is_negative = false; // an integer, whose bits are in two's complement
    uint8_t key = 0;          // an entry of a dictionary: the number of its name
    uint32_t next = 0;        // another entry of the dictionary; 0: none
};

class Pickle {
public:
    // Up to `most` bytes; 0 at the end.
    using Source = std::function<size_t(char *into, size_t most)>;
    static constexpr size_t most_values = size_t(1) << 27; // 2 GiB of memory
    static constexpr size_t most_open = 256;               // containers within containers

    // At most 255 names, which outlive it. A dictionary whose entry `kind` is none of them counts
    // as empty.
    Pickle(Source source, std::span<const std::string_view> names, uint8_t kind);
    Pickle(const Pickle &) = delete;
    Pickle &operator=(const Pickle &) = delete;

    // Throws Malformed, and offset() is where.
    void read();

    // Of the opcode that is read.
    uint64_t offset() const { return opcode_at_; }

    // As many as the file has, whatever refers to one again.
    size_t values() const { return values_; }

    const PickleValue &root() const { return root_; }
    const std::vector<PickleValue> &list(const PickleValue &value) const {
        return lists_[value.payload];
    }
    // The entry with that key, or null.
    const PickleValue *find(const PickleValue &dictionary, uint8_t name) const;

private:
    using Kind = PickleValue::Kind;

    bool step(uint8_t code); // false: it was the last one
    bool step_simple(uint8_t code);
    bool step_container(uint8_t code);
    bool step_memo(uint8_t code);
    [[noreturn]] void refuse(uint8_t code) const;

    uint8_t byte();
    uint64_t little_endian(size_t bytes);
    void fill();
    void skip(uint64_t bytes);

    void push(Kind kind, uint64_t payload = 0, bool is_negative = false);
    PickleValue pop();
    void integer(size_t bytes, bool is_signed);
    void long_integer(uint64_t bytes);
    void text(uint64_t bytes);
    void byte_text(uint64_t bytes);
    void tuple(size_t count);
    void remember(uint64_t number);
    void recall(uint64_t number);
    size_t take_mark();
    void append(size_t first);
    void set_items(size_t first);
    bool is_of_known_kind(size_t first) const;
    void add_entry(uint32_t &last, const PickleValue &key, const PickleValue &value);
    void keep(std::vector<PickleValue> &list, const PickleValue &value);
    void count_value();

    const Source source_;
    const std::span<const std::string_view> names_;
    const uint8_t kind_;
    std::vector<char> buffer_;
    size_t at_ = 0, filled_ = 0;
    uint64_t before_ = 0; // bytes before the buffer
    uint64_t opcode_at_ = 0;

    std::vector<PickleValue> stack_, memo_;
    std::vector<size_t> marks_;
    std::deque<std::vector<PickleValue>> lists_;
    std::vector<uint32_t> dictionaries_; // the last entry of each, in entries_
    std::deque<PickleValue> entries_;    // from number 1 on
    size_t values_ = 0;
    PickleValue root_;
};

} // namespace emm::tool

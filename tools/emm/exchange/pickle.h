// Reads pickles of dictionaries, lists, tuples, texts and numbers, as PyTorch writes snapshots:
// with Python's pickle module, protocol 2 to 5, or with its own Pickler. A pickle is a program.
// Opcodes that could call anything are refused, and so are all that no snapshot needs.
//
// A dictionary keeps the entries whose keys the caller names, and a list keeps the elements that
// still hold something: the call stacks of a snapshot are most of it, and are of no use here.
// Memory grows with the kept entries, up to a limit.
//
// The reader is C++, and not Python, for three reasons. The tool runs without Python: in containers
// of C++ programs, and beside a Python that holds all memory. A snapshot of gigabytes, most of it
// call stacks, is read in the memory that its events take. Python's own reader runs whatever calls
// a file contains.
#pragma once

#include "exchange/output.h"
#include "trace/builder.h"

#include <cstdint>
#include <deque>
#include <functional>
#include <span>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

// The opcodes that snapshots have.
namespace emm::tool::opcode {

inline constexpr uint8_t mark = '(', stop = '.', proto = 0x80, frame = 0x95;
inline constexpr uint8_t none = 'N', new_true = 0x88, new_false = 0x89;
inline constexpr uint8_t bin_int = 'J', bin_int1 = 'K', bin_int2 = 'M', long1 = 0x8a;
inline constexpr uint8_t long4 = 0x8b;
inline constexpr uint8_t bin_float = 'G';
inline constexpr uint8_t short_bin_unicode = 0x8c, bin_unicode = 'X', bin_unicode8 = 0x8d;
inline constexpr uint8_t empty_dict = '}', set_item = 's', op_set_items = 'u';
inline constexpr uint8_t empty_list = ']', op_append = 'a', appends = 'e';
inline constexpr uint8_t empty_tuple = ')', op_tuple = 't';
inline constexpr uint8_t empty_set = 0x8f, add_items = 0x90, frozen_set = 0x91;
inline constexpr uint8_t short_bin_bytes = 'C', bin_bytes = 'B', bin_bytes8 = 0x8e;
inline constexpr uint8_t byte_array8 = 0x96;
inline constexpr uint8_t tuple1 = 0x85, tuple2 = 0x86, tuple3 = 0x87;
inline constexpr uint8_t memoize = 0x94, bin_put = 'q', long_bin_put = 'r';
inline constexpr uint8_t bin_get = 'h', long_bin_get = 'j';

// Another opcode of Python's.
struct Other {
    uint8_t code;
    const char *name;
    bool calls; // or lets others call: its result is up to the pickle
};
const Other *find_other(uint8_t code); // null: unknown

} // namespace emm::tool::opcode

namespace emm::tool {

struct PickleValue {
    enum class Kind : uint8_t { none, boolean, integer, real, name, text, list, dictionary };

    uint64_t payload = 0; // an integer, the number of a name, a text, a list or a dictionary
    Kind kind = Kind::none;
    bool is_negative = false; // an integer, whose bits are in two's complement
    uint8_t key = 0;          // for a dictionary's entry: the number of its name
    uint32_t next = 0;        // the dictionary's next entry; 0: none
};

class Pickle {
public:
    // Up to `most` bytes; 0 at the end.
    using Source = std::function<size_t(char *into, size_t most)>;
    static constexpr size_t longest_text = 4096;
    static constexpr size_t most_values = size_t(1) << 27; // and open containers; 2 GiB of memory

    // At most 255 names, which outlive the object. A dictionary whose entry `kind` is not a known
    // name counts as empty. With `keeps_texts` all other texts are kept as well, each once, except
    // those longer than `longest_text`.
    Pickle(Source source, std::span<const std::string_view> names, uint8_t kind,
           bool keeps_texts = false);
    Pickle(const Pickle &) = delete;
    Pickle &operator=(const Pickle &) = delete;

    // Throws Malformed, and offset() is where.
    void read();

    // The offset of the present opcode.
    uint64_t offset() const { return opcode_at_; }

    // The number of values in the file. References do not count again.
    size_t values() const { return values_; }

    const PickleValue &root() const { return root_; }
    const std::vector<PickleValue> &list(const PickleValue &value) const {
        return lists_[value.payload];
    }
    // The text of a name or a text; "" for other values, and for texts that are not kept.
    std::string_view text_of(const PickleValue &value) const;
    // The entry with that key, or null.
    const PickleValue *find(const PickleValue &dictionary, uint8_t name) const;

private:
    using Kind = PickleValue::Kind;

    bool step(uint8_t code); // false: the last opcode
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
    uint64_t text_number(std::string_view word);
    void byte_text(uint64_t bytes);
    void tuple(size_t count);
    static void protocol(uint8_t version);
    void open_dictionary();
    void remember(uint64_t number);
    void recall(uint64_t number);
    void put_mark();
    size_t take_mark();
    void append(size_t first);
    void set_items(size_t first);
    bool is_of_known_kind(size_t first) const;
    void add_entry(uint32_t &last, const PickleValue &key, const PickleValue &value);
    void keep(std::vector<PickleValue> &list, const PickleValue &value);
    void expect_room() const;
    void count_value();

    const Source source_;
    const std::span<const std::string_view> names_;
    const uint8_t kind_;
    const bool keeps_texts_;
    std::deque<std::string> texts_;
    std::unordered_map<std::string_view, uint64_t> text_numbers_;
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

// Writes a pickle of dictionaries, lists, texts and whole numbers, protocol 4, for Python's pickle
// module and the viewer at pytorch.org/memory_viz.
class PickleWriter {
public:
    explicit PickleWriter(Output &output);

    void open_dictionary();
    void close_dictionary();
    void open_list();
    // Between the items of a long list: a reader need not hold more than these at a time.
    void next_part();
    void close_list();

    // A text that is repeated, as a key is: written once.
    void word(std::string_view text);
    // Any other text; bytes that are not UTF-8 are replaced.
    void text(std::string_view text);
    void number(uint64_t value);
    void signed_number(int64_t value);
    void boolean(bool value);

    // An entry of a dictionary.
    void entry(std::string_view key, std::string_view value) { word(key), word(value); }
    void entry(std::string_view key, uint64_t value) { word(key), number(value); }

    // Keeps the last written value, and gives its number.
    uint32_t keep();
    void again(uint32_t number);

    void finish();

private:
    void write(uint8_t code);
    void little_endian(uint64_t value, size_t bytes);

    Output &output_;
    uint32_t kept_ = 0;
    std::unordered_map<std::string_view, uint32_t> words_; // literals
};

} // namespace emm::tool

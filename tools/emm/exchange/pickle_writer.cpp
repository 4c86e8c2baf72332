#include "exchange/pickle.h"

#include "observe/text.h"

#include <limits>

namespace emm::tool {

PickleWriter::PickleWriter(Output &output) : output_(output) {
    write(opcode::proto);
    output_.write('\4');
}

void PickleWriter::open_dictionary() {
    write(opcode::empty_dict);
    write(opcode::mark);
}

void PickleWriter::close_dictionary() {
    write(opcode::op_set_items);
}

void PickleWriter::open_list() {
    write(opcode::empty_list);
    write(opcode::mark);
}

void PickleWriter::next_part() {
    write(opcode::appends);
    write(opcode::mark);
}

void PickleWriter::close_list() {
    write(opcode::appends);
}

void PickleWriter::word(std::string_view text) {
    const auto known = words_.find(text);
    if (known != words_.end()) {
        again(known->second);
        return;
    }
    this->text(text);
    words_[text] = keep();
}

void PickleWriter::text(std::string_view text) {
    const std::string plain = observe::one_line(text);
    write(opcode::bin_unicode);
    little_endian(plain.size(), 4);
    output_.write(plain);
}

void PickleWriter::number(uint64_t value) {
    if (value <= 0xff) {
        write(opcode::bin_int1);
        little_endian(value, 1);
    } else if (value <= 0xffff) {
        write(opcode::bin_int2);
        little_endian(value, 2);
    } else if (value <= static_cast<uint64_t>(std::numeric_limits<int32_t>::max())) {
        write(opcode::bin_int);
        little_endian(value, 4);
    } else {
        const bool is_long = value >> 63 != 0; // a zero byte keeps the number from being negative
        write(opcode::long1);
        little_endian(is_long ? 9 : 8, 1);
        little_endian(value, 8);
        little_endian(0, is_long ? 1 : 0);
    }
}

void PickleWriter::signed_number(int64_t value) {
    if (value >= 0) {
        number(static_cast<uint64_t>(value));
        return;
    }
    write(opcode::long1);
    little_endian(8, 1);
    little_endian(static_cast<uint64_t>(value), 8);
}

void PickleWriter::boolean(bool value) {
    write(value ? opcode::new_true : opcode::new_false);
}

uint32_t PickleWriter::keep() {
    write(opcode::long_bin_put);
    little_endian(kept_, 4);
    return kept_++;
}

void PickleWriter::again(uint32_t number) {
    const bool is_short = number <= 0xff;
    write(is_short ? opcode::bin_get : opcode::long_bin_get);
    little_endian(number, is_short ? 1 : 4);
}

void PickleWriter::finish() {
    write(opcode::stop);
}

void PickleWriter::write(uint8_t code) {
    output_.write(static_cast<char>(code));
}

void PickleWriter::little_endian(uint64_t value, size_t bytes) {
    for (size_t i = 0; i < bytes; i++) {
        output_.write(static_cast<char>(value >> 8 * i & 0xff));
    }
}

} // namespace emm::tool

// The opcodes of Python's pickle format that snapshots have.
#pragma once

#include <cstdint>

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

// Another opcode that Python knows.
struct Other {
    uint8_t code;
    const char *name;
    bool calls; // or has others call: what it makes is up to the pickle
};
const Other *find_other(uint8_t code); // null for all else

} // namespace emm::tool::opcode

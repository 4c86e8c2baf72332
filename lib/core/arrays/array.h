#pragma once

#include <emm/array.h>

#include <span>
#include <string>

namespace emm::core {

// The parts of a typestr of the array interface, such as "<f4".
struct ElementType {
    char order = '|'; // '<', '>', or '|' where it does not matter
    char kind = 'V';
    uint64_t size = 0; // bytes
};

// `where` begins the sentence that says why the text does not parse.
emm_status parse_typestr(const char *text, const std::string &where, ElementType &ret_type);

// Checks that the parts of an element are well formed and have `size` bytes together.
emm_status check_descr(const emm_array_field *fields, uint32_t count, uint64_t size,
                       const std::string &where);

// An array's shape, strides and typestr, checked and computed. The data may be anywhere.
struct Layout {
    ElementType type;
    uint64_t count = 0;  // elements
    uint64_t size = 0;   // bytes from the lowest to the highest
    uint64_t offset = 0; // of the element whose indices are all 0, from the lowest byte
    bool c_contiguous = false;
    bool f_contiguous = false;
    int64_t strides[EMM_ARRAY_MAX_DIMENSIONS] = {}; // bytes
};

inline std::span<const int64_t> shape_of(const emm_array &array) {
    return {array.shape, array.ndim};
}

// "(2, 3)"
std::string text_of(std::span<const int64_t> shape);

// `where` begins the sentence that says why no such array can exist.
emm_status measure(const emm_array &array, const std::string &where, Layout &ret_layout);

// The rules of the CUDA Array Interface. `where` begins the sentence that names the broken rule.
emm_status validate(const emm_array &array, const std::string &where, Layout &ret_layout);

} // namespace emm::core

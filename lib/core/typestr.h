#pragma once

#include <emm/array.h>

#include <string>

namespace emm::core {

// What a typestr of the array interface says: "<f4".
struct ElementType {
    char order = '|'; // '<', '>', or '|' where it does not matter
    char kind = 'V';
    uint64_t size = 0; // bytes
};

// `where` begins the sentence that says why it does not parse.
emm_status parse_typestr(const char *text, const std::string &where, ElementType &ret_type);

// Checks that the parts of an element are well formed and have `size` bytes together.
emm_status check_descr(const emm_array_field *fields, uint32_t count, uint64_t size,
                       const std::string &where);

} // namespace emm::core

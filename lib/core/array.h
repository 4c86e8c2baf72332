#pragma once

#include "core/layout.h"

namespace emm::core {

// "0x7f0000001000"
std::string hexadecimal(uint64_t value);

// The rules of the CUDA Array Interface. `where` begins the sentence that says which is broken.
emm_status validate(const emm_array &array, const std::string &where, Layout &ret_layout);

} // namespace emm::core

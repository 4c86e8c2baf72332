#pragma once

#include "core/arrays/layout.h"

namespace emm::core {

// The rules of the CUDA Array Interface. `where` begins the sentence that says which is broken.
emm_status validate(const emm_array &array, const std::string &where, Layout &ret_layout);

} // namespace emm::core

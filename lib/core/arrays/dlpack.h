#pragma once

#include "core/arrays/array.h"
#include "core/arrays/dlpack_abi.h"

#include <vector>

namespace emm::core {

// A tensor's description with the arrays that it points to.
struct Tensor {
    dlpack::Tensor tensor = {};
    bool read_only = false;
    std::vector<int64_t> shape, strides;
};

// Describes an array in the memory that `info` describes. `type` may be NULL.
emm_status describe(const emm_memory_info &info, uint64_t offset, const emm_array &array,
                    const emm_dlpack_type *type, Tensor &ret_tensor);

} // namespace emm::core

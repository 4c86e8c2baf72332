#pragma once

#include "core/arrays/array.h"
#include "core/arrays/dlpack_abi.h"
#include "core/record/context.h"

#include <vector>

// The part of array exchange that needs the driver and a handle's memory.

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

// The memory of a valid array, as a context uses it.
struct Place {
    emm_deviceptr begin = 0; // the lowest byte
    void *host = nullptr;    // of the same byte; NULL: the host cannot use it
};

// Finds the memory of another library's array, and orders later work of `stream` behind the data.
emm_status take_over(emm_context &context, const emm_array &array, const Layout &layout,
                     emm_stream stream, uint32_t flags, Place &ret_place);

// Fills `array` for the memory that `info` describes, as emm_array_export does, without its stream.
// `host`: the host's address suffices.
emm_status lay_out(const emm_memory_info &info, uint64_t offset, bool host, emm_array &array,
                   Layout &ret_layout);

// Implements emm_array_export.
emm_status hand_over(const emm_memory_info &info, uint64_t offset, emm_stream stream,
                     emm_array &array);

} // namespace emm::core

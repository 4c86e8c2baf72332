#pragma once

#include "core/ipc/descriptors.h"

namespace emm::core::ipc {

// Fetches the memory pool of what a checked handle names, and the allocation in it, for the
// context's device to use. Each mapping has a view of the pool for itself.
emm_status map_pooled(const emm_context &context, const emm_ipc_handle &handle,
                      Mapping *ret_mapping);

} // namespace emm::core::ipc

#pragma once

#include "core/ipc/descriptors.h"

namespace emm::core::ipc {

// Fetches the memory pool of what a checked handle names, and the allocation in it, for the
// context's device to use. The pool goes with the last mapping.
emm_status map_pooled(const emm_context &context, const emm_ipc_handle &handle,
                      Mapping *ret_mapping);

// The importer frees an allocation of a pool before the exporter may.
CUresult unmap_pooled(const driver::Driver &driver, Mapping &mapping) noexcept;

} // namespace emm::core::ipc

#pragma once

#include "core/handle.h"

namespace emm::core::ipc {

// What a checked handle names, on a device whose memory the context cannot use: a copy in memory of
// the context's own manager. It is the caller's, and has nothing to do with the export any more.
emm_status open_copy(emm_context &context, int32_t device, const emm_ipc_handle &handle,
                     emm_memory **ret_memory, EMM_CALLER) noexcept;

} // namespace emm::core::ipc

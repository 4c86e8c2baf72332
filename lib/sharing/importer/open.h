#pragma once

#include <emm/emm.h>

namespace emm::sharing {

// emm_memory_open_ipc: the handle is checked by itself, its device found, the exporter asked
// whether the export goes on, and the memory mapped, or copied where the context cannot reach its
// device. No other thread can change `handle`.
emm_status open_handle(emm_context &context, const emm_ipc_handle &handle, emm_memory **ret_memory,
                       const void *caller) noexcept;

} // namespace emm::sharing

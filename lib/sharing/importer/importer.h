#pragma once

#include "core/handles/handle.h"

#include <emm/emm.h>

namespace emm::sharing {

// emm_memory_open_ipc: the handle is checked by itself, its device found, the exporter asked
// whether the export goes on, and the memory mapped, or copied where the context cannot reach its
// device. No other thread can change `handle`.
emm_status open_handle(emm_context &context, const emm_ipc_handle &handle, emm_memory **ret_memory,
                       const void *caller) noexcept;

// Opens what a checked handle names, or counts one opening more: what another process exported is
// opened once in a context, and there is one Import for it. Every opening is closed once.
emm_status open_import(emm_context &context, const emm_ipc_handle &handle,
                       core::Import **ret_import, emm_deviceptr *ret_base);

// Sharing::set_access of core/record/context.h.
void set_imports_access(const emm_context &context, int32_t device, uint32_t flags);

// Closes whatever the context has open.
void close_imports(emm_context &context) noexcept;

} // namespace emm::sharing

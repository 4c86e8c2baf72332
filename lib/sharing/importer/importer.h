#pragma once

#include "core/handles/handle.h"

#include <emm/emm.h>

namespace emm::sharing {

// emm_memory_open_ipc. Checks the handle by itself, finds its device, and asks the exporter whether
// the export still exists. Then maps the memory, or copies it if the context cannot reach its
// device. No other thread can change `handle`.
emm_status open_handle(emm_context &context, const emm_ipc_handle &handle, emm_memory **ret_memory,
                       const void *caller) noexcept;

// Opens the export of a checked handle, or counts one opening more. A context opens each export
// once, and has one Import for it. Every opening is closed once.
emm_status open_import(emm_context &context, const emm_ipc_handle &handle,
                       core::Import **ret_import, emm_deviceptr *ret_base);

// Sharing::set_access of core/record/context.h.
void set_imports_access(const emm_context &context, int32_t device, uint32_t flags);

// Closes everything that the context has open.
void close_imports(emm_context &context) noexcept;

} // namespace emm::sharing

#pragma once

#include "core/record/context.h"

struct emm_memory;

namespace emm::sharing {

// What this process exports. `memory` is kept until the export is released; NULL: the caller keeps
// what lies there. A handle's export asked for again is the same, and is to be released as often.
emm_status get_handle(emm_context &context, emm_memory *memory, emm_deviceptr ptr, size_t size,
                      emm_ipc_handle *ret_handle) noexcept;
emm_status release_handle(emm_context &context, const emm_ipc_handle &handle) noexcept;

// The handle of the export that a name names, for an importer that asks. False: there is none.
bool find_export(const emm_ipc_name &name, emm_ipc_handle *ret_handle) noexcept;

// The context's memory is dropped, and its exports end.
void end_exports(emm_context &context) noexcept;

// The slot get_ipc_handle of plugins that leave it out: memory in a block of cuMemAlloc
// (legacy.cpp).
emm_status get_legacy_handle(emm_context &context, emm_deviceptr ptr, size_t size,
                             emm_ipc_handle *ret_handle);

// emm_memory_export: of a handle's memory, or of a view's part of it.
emm_status export_memory(emm_memory &memory, emm_ipc_handle *ret_handle) noexcept;

} // namespace emm::sharing

#pragma once

#include "core/context.h"

struct emm_memory;

namespace emm::core::ipc {

// What this process exports. `memory` is kept until the export is released; NULL: the caller keeps
// what lies there. A handle's export asked for again is the same, and is to be released as often.
emm_status get_handle(emm_context &context, emm_memory *memory, emm_deviceptr ptr, size_t size,
                      emm_ipc_handle *ret_handle) noexcept;
emm_status release_handle(emm_context &context, const emm_ipc_handle &handle) noexcept;

// The context's memory has been dropped, and its exports with it.
void end_exports(emm_context &context) noexcept;

// The slots of plugins that leave them out: memory in a block of cuMemAlloc.
emm_status get_legacy_handle(emm_context &context, emm_deviceptr ptr, size_t size,
                             emm_ipc_handle *ret_handle);

} // namespace emm::core::ipc

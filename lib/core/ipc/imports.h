#pragma once

#include "core/context.h"

namespace emm::core::ipc {

// What another process exported and a context has open. One for all openings of the same export.
struct Import;

// Opens what a checked handle names, or counts one opening more: cuIpcOpenMemHandle is called once.
// Every opening is closed once.
emm_status open_import(emm_context &context, const emm_ipc_handle &handle, Import **ret_import,
                       emm_deviceptr *ret_base);
emm_status close_import(Import &import) noexcept;

// Closes whatever the context has open.
void close_imports(emm_context &context) noexcept;

} // namespace emm::core::ipc

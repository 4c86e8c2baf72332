#pragma once

#include "core/record/sharing.h"

namespace emm::sharing {

// Opens what a checked handle names, or counts one opening more: what another process exported is
// opened once in a context, and there is one Import for it. Every opening is closed once.
emm_status open_import(emm_context &context, const emm_ipc_handle &handle, Import **ret_import,
                       emm_deviceptr *ret_base);

// Closes whatever the context has open.
void close_imports(emm_context &context) noexcept;

} // namespace emm::sharing

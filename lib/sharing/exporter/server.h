#pragma once

#include <emm/emm.h>

namespace emm::sharing {

// Finds the handle of the export with that name. False: no such export.
using FindExport = bool (*)(const emm_ipc_name &name, emm_ipc_handle *ret_handle) noexcept;

// From here on importers that connect to this process are answered, by a thread that starts with
// the first call.
emm_status start_serving(FindExport find) noexcept;

} // namespace emm::sharing

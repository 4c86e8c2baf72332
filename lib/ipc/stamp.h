#pragma once

#include <emm/emm.h>

namespace emm::ipc {

// Fills what a plugin leaves to the host, for an export of what lies at `ptr`: everything but kind,
// handle, offset, size and exported_size. The generation is there already.
emm_status stamp(const emm_context &context, emm_deviceptr ptr, emm_ipc_handle &handle);

// Whether `handle` is whole, of a kind that is opened here, and another process's. No driver and no
// other process is asked.
emm_status check_stamp(const emm_ipc_handle &handle);

} // namespace emm::ipc

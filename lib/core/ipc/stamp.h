#pragma once

#include <emm/emm.h>

namespace emm::core::ipc {

// Fills what a plugin leaves to the host, for an export of what lies at `ptr`: everything but kind,
// handle, offset, size and exported_size. The generation is there already.
emm_status stamp(const emm_context &context, emm_deviceptr ptr, emm_ipc_handle &handle);

// Whether `handle` is whole, lies on a device of this process, and may be opened. The driver does
// not see it.
emm_status check(const emm_context &context, const emm_ipc_handle &handle, int32_t *ret_device);

} // namespace emm::core::ipc

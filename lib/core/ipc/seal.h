#pragma once

#include <emm/emm.h>

namespace emm::core::ipc {

// Fills what a plugin leaves to the host: everything but kind, handle, offset, size and
// exported_size.
emm_status seal(const emm_context &context, uint64_t generation, emm_ipc_handle &handle);

// Whether `handle` is whole and may be opened in `context`. No driver call is made.
emm_status check(const emm_context &context, const emm_ipc_handle &handle);

} // namespace emm::core::ipc

// The short form of a handle: which export of which process, and half of what only holders of the
// handle know. What it lacks the exporter tells.
#pragma once

#include <emm/emm.h>

namespace emm::sharing {

bool is_name(const void *bytes) noexcept;

// The name of any handle, and of one that is checked as for opening it.
emm_ipc_name write_name(const emm_ipc_handle &handle) noexcept;
emm_status name_handle(const emm_ipc_handle &handle, emm_ipc_name *ret_name);

// The number of the export, of bytes that may be anything.
uint64_t generation_of(const emm_ipc_name &name) noexcept;

// Whether it is whole, and of another process than this.
emm_status check_name(const emm_ipc_name &name);

// A handle with the two fields that a name has, the exporter and the export; the others are 0.
emm_ipc_handle handle_of(const emm_ipc_name &name) noexcept;

} // namespace emm::sharing

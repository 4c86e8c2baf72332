#pragma once

#include <emm/emm.h>

namespace emm::ipc {

// What `handle` holds of memory that is served part by part.
struct DescriptorHandle {
    uint8_t secret[32];
    uint64_t parts;
    uint8_t zeros[24];
};
static_assert(sizeof(DescriptorHandle) == sizeof(emm_ipc_handle::handle));

// From here on the listening socket of an export is served, by a thread that starts with the first.
// After a failure it is still the caller's.
emm_status start_serving(uint64_t generation, int listening) noexcept;

// Closes it.
void end_serving(uint64_t generation) noexcept;

} // namespace emm::ipc

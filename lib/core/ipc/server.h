#pragma once

#include <emm/emm.h>

namespace emm::core::ipc {

// What `handle` holds of memory that is served part by part.
struct DescriptorHandle {
    uint8_t secret[32];
    uint64_t parts;
    uint8_t zeros[24];
};
static_assert(sizeof(DescriptorHandle) == sizeof(emm_ipc_handle::handle));

// Starts the thread that serves, with the first export that needs it.
emm_status start_serving() noexcept;

} // namespace emm::core::ipc

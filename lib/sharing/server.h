#pragma once

#include <emm/emm.h>

namespace emm::sharing {

// What `handle` holds of memory that is served part by part.
struct DescriptorHandle {
    uint8_t secret[32];
    uint64_t parts;
    uint8_t zeros[24];
};
static_assert(sizeof(DescriptorHandle) == sizeof(emm_ipc_handle::handle));

// From here on importers that connect to this process are answered, by a thread that starts with
// the first call.
emm_status start_serving() noexcept;

} // namespace emm::sharing

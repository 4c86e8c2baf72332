#pragma once

#include "core/context.h"

#include <vector>

namespace emm::core::ipc {

// Another process's physical memory, mapped here: the parts side by side. Or an allocation of its
// memory pool.
struct Mapping {
    struct Part {
        uint64_t offset, size;
    };
    emm_deviceptr base = 0;
    uint64_t size = 0; // of the reserved addresses
    std::vector<Part> parts;
    CUmemoryPool pool = nullptr; // as imported; NULL: parts
};

// Fetches the parts of what a checked handle names and maps them, for the context's device to use.
emm_status map_export(const emm_context &context, const emm_ipc_handle &handle,
                      Mapping *ret_mapping);

// Waits for the context's work, for the driver would not. While a stream captures nothing can wait:
// it is then left to the context's pending deallocations. After a failure `mapping` is what is
// still to be unmapped.
emm_status unmap_export(emm_context &context, Mapping &mapping) noexcept;

} // namespace emm::core::ipc

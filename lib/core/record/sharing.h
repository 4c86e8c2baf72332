#pragma once

#include <emm/plugin.h>

namespace emm::core {

// What core asks of lib/sharing, which stands above it: core itself knows neither exports nor
// imports.
struct Sharing {
    // The context's memory is dropped: its exports end, and what it has opened of other processes'
    // is closed.
    void (*end)(emm_context &context) noexcept;

    // Gives a device access to the memory of other processes that the context has open (flags:
    // EMM_ACCESS_*). Later imports follow `announced`. A refusal by the driver is logged.
    void (*set_access)(const emm_context &context, int32_t device, uint32_t flags);

    // The slot get_ipc_handle of plugins that leave it out: memory in a block of cuMemAlloc.
    emm_status (*get_legacy_handle)(emm_context &context, emm_deviceptr ptr, size_t size,
                                    emm_ipc_handle *ret_handle);

    // host->serve_ipc and host->withdraw_ipc. The handle is a random number, which an importer has
    // to know.
    emm_status (*serve)(emm_context &context, const emm_ipc_source &source,
                        emm_ipc_handle *ret_handle);
    emm_status (*withdraw)(const emm_context &context, const emm_ipc_handle &handle) noexcept;
};

// Set by lib/api, which knows both, before a context is asked for.
inline constinit const Sharing *sharing = nullptr;

} // namespace emm::core

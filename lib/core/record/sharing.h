#pragma once

#include <emm/plugin.h>

// What core asks of the layer above it, which shares memory between processes: lib/ipc defines
// these. Core itself knows neither exports nor imports.
namespace emm::sharing {

// What an opened export is to a handle.
struct Import;

// One opening less; the last one closes what the exporter has.
emm_status close_import(Import &import) noexcept;

// A device may use what the context has opened of other processes' too (flags: EMM_ACCESS_*), and
// what it opens later as `announced` says. What the driver refuses is warned of.
void set_imports_access(const emm_context &context, int32_t device, uint32_t flags);

// The context's memory is dropped: its exports end, and what it has opened of other processes' is
// closed.
void end_sharing(emm_context &context) noexcept;

// The slot get_ipc_handle of plugins that leave it out: memory in a block of cuMemAlloc.
emm_status get_legacy_handle(emm_context &context, emm_deviceptr ptr, size_t size,
                             emm_ipc_handle *ret_handle);

// host->serve_ipc and host->withdraw_ipc. The handle is a random number, which an importer has to
// know.
emm_status serve_export(emm_context &context, const emm_ipc_source &source,
                        emm_ipc_handle *ret_handle);
emm_status withdraw_export(const emm_context &context, const emm_ipc_handle &handle) noexcept;

} // namespace emm::sharing

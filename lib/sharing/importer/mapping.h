#pragma once

#include "core/record/context.h"

#include <vector>

namespace emm::sharing {

// Another process's memory, opened in a context: a block of cuMemAlloc, physical memory mapped part
// by part side by side, or an allocation of a memory pool.
struct Mapping {
    struct Part {
        uint64_t offset, size;
        // 0, unless the driver has refused to release the handle.
        CUmemGenericAllocationHandle unreleased;
    };
    uint32_t kind = EMM_IPC_LEGACY;
    emm_deviceptr base = 0;
    uint64_t size = 0; // of all parts; otherwise the size that `measure` found
    std::vector<Part> parts;
    CUmemoryPool pool = nullptr; // as imported
};

// Describes the driver's answer to `call`, which opens an export. EMM_E_BUSY: the exporter's
// address is open here already.
emm_status fail_to_open(CUresult result, const char *call);

// Maps the export of a checked handle for the context's device. Throws std::bad_alloc.
emm_status map_export(const emm_context &context, const emm_ipc_handle &handle,
                      Mapping *ret_mapping);

// Grants access to the context's device, which must succeed, and to the devices that may use the
// context's memory.
emm_status grant_access(const emm_context &context, const Mapping &mapping);
// Grants access to another device; a refusal by the driver is logged. Memory in a block of
// cuMemAlloc is left alone: for that, cuCtxEnablePeerAccess decides.
void set_peer_access(const emm_context &context, const Mapping &mapping, int32_t device,
                     uint32_t flags);

// Asks the driver how many bytes lie at `mapping`, and ignores the handle's size.
emm_status measure(const emm_context &context, Mapping &mapping);

// Waits for the context's work first. After a failure `mapping` is the part that is still mapped.
emm_status unmap_export(const emm_context &context, Mapping &mapping) noexcept;

// The two kinds that need the exporter's descriptors (served.cpp), with the context current. If
// mapping fails, nothing stays mapped; if unmapping fails, `mapping` is the part that is still
// mapped.
emm_status map_parts(const emm_context &context, const emm_ipc_handle &handle, Mapping &mapping);
CUresult unmap_parts(const driver::Driver &driver, Mapping &mapping) noexcept;
emm_status map_pooled(const emm_context &context, const emm_ipc_handle &handle, Mapping &mapping);
CUresult unmap_pooled(const driver::Driver &driver, Mapping &mapping) noexcept;
// The mapping no longer counts as open, also if the driver could not unmap it because its context
// has died or failed.
void forget_pooled(const Mapping &mapping) noexcept;

} // namespace emm::sharing

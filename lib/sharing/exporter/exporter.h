#pragma once

#include "core/record/context.h"
#include "sharing/handle/wire.h"

#include <emm/emm.h>

struct emm_memory;

namespace emm::sharing {

// --- exports and their handles (exports.cpp) ----------------------------------------------------

// This process's exports. Until the export is released, it holds `memory`. If `memory` is NULL, the
// caller keeps the allocation. A second export of a handle is the same export, and must be released
// as often.
emm_status get_handle(emm_context &context, emm_memory *memory, emm_deviceptr ptr, size_t size,
                      emm_ipc_handle *ret_handle) noexcept;
emm_status release_handle(emm_context &context, const emm_ipc_handle &handle) noexcept;

// The handle of the export with this name, for an importer that asks. False: no such export.
bool find_export(const emm_ipc_name &name, emm_ipc_handle *ret_handle) noexcept;

// Ends the context's exports, because its memory is dropped.
void end_exports(emm_context &context) noexcept;

// The slot get_ipc_handle, for plugins that lack it: exports memory in a block of cuMemAlloc.
emm_status get_legacy_handle(emm_context &context, emm_deviceptr ptr, size_t size,
                             emm_ipc_handle *ret_handle);

// emm_memory_export, for a handle's memory, or for a view's part of it.
emm_status export_memory(emm_memory &memory, emm_ipc_handle *ret_handle) noexcept;

// --- the parts behind each export, while it lasts (served_exports.cpp) --------------------------

// host->serve_ipc and host->withdraw_ipc. The handle contains a random number that an importer must
// know.
emm_status serve_export(emm_context &context, const emm_ipc_source &source,
                        emm_ipc_handle *ret_handle);
emm_status withdraw_export(const emm_context &context, const emm_ipc_handle &handle) noexcept;

// Announces an export: from now on importers may ask for it by the handle's generation.
emm_status publish_export(const emm_context &context, const emm_ipc_handle &handle);

// Withdraws the context's parts, which are about to go.
void withdraw_exports(const emm_context &context) noexcept;

// The answer to a request, and its descriptors. While this lives, the export is not withdrawn.
class ServedReply {
public:
    explicit ServedReply(const Request &request) noexcept;
    ~ServedReply();
    ServedReply(const ServedReply &) = delete;
    ServedReply &operator=(const ServedReply &) = delete;
    const Reply &reply() const { return reply_; }
    const int *descriptors() const { return descriptors_; }

private:
    void refuse(emm_status status, int32_t driver_result) noexcept;
    void fill(const emm_context &context, uint32_t kind) noexcept;

    struct ServedExport *export_ = nullptr;
    Reply reply_ = {};
    emm_ipc_part parts_[parts_at_once];
    int descriptors_[parts_at_once];
};

// From now on, importers that connect to this process are answered, by a thread that starts with
// the first call.
emm_status start_serving() noexcept;

} // namespace emm::sharing

// The slots of a plugin that leaves them out. Those that keep memory take a DefaultMemory for
// `self`; the rest say politely that the plugin cannot do this, or that there is nothing to do.
#include "core/memory/default_memory.h"
#include "core/record/sharing.h"
#include "observe/error.h"

namespace emm::core {
namespace {

DefaultMemory &memory(emm_manager *self) {
    return *reinterpret_cast<DefaultMemory *>(self);
}

emm_status not_supported(const char *what) {
    return observe::fail(EMM_E_NOT_SUPPORTED, 0, std::string("this plugin does not ") + what);
}

emm_plugin make_table() {
    emm_plugin table = {};
    table.struct_size = sizeof table;
    table.destroy = [](emm_manager *) -> emm_status { return EMM_OK; };
    table.initialize = [](emm_manager *) -> emm_status { return EMM_OK; };
    table.memhostalloc = [](emm_manager *self, size_t size, uint32_t flags, void **ret_host,
                            emm_deviceptr *ret_device) {
        return memory(self).host_alloc(size, flags, ret_host, ret_device);
    };
    table.memhostfree = [](emm_manager *self, void *host, size_t size, uint32_t flags,
                           emm_stream stream) {
        return memory(self).host_free(host, size, flags, stream);
    };
    table.mempin = [](emm_manager *self, void *host, size_t size, uint32_t flags,
                      emm_deviceptr *ret_device) {
        return memory(self).pin(host, size, flags, ret_device);
    };
    table.memunpin = [](emm_manager *self, void *host, size_t size) {
        return memory(self).unpin(host, size);
    };
    table.memallocmanaged = [](emm_manager *self, size_t size, uint32_t flags,
                               emm_deviceptr *ret_ptr) {
        return memory(self).alloc_managed(size, flags, ret_ptr);
    };
    table.memfreemanaged = [](emm_manager *self, emm_deviceptr ptr, size_t size,
                              emm_stream stream) {
        return memory(self).free_managed(ptr, size, stream);
    };
    table.get_memory_info = [](emm_manager *self, size_t *ret_free, size_t *ret_total) {
        return memory(self).memory_info(ret_free, ret_total);
    };
    table.get_ipc_handle = [](emm_manager *self, emm_deviceptr ptr, size_t size,
                              emm_ipc_handle *ret_handle) {
        return sharing->get_legacy_handle(memory(self).context(), ptr, size, ret_handle);
    };
    table.release_ipc_handle = [](emm_manager *, const emm_ipc_handle *) -> emm_status {
        return EMM_OK; // CUDA keeps nothing for a handle
    };
    // Never called: the host destroys and creates instead.
    table.reset = [](emm_manager *) -> emm_status { return EMM_OK; };
    table.defer_cleanup = [](emm_manager *, uint32_t) -> emm_status { return EMM_OK; };
    table.trim = [](emm_manager *, size_t, size_t *ret_released) -> emm_status {
        *ret_released = 0;
        return EMM_OK;
    };
    table.query = [](emm_manager *, emm_deviceptr, emm_block_info *) {
        return not_supported("describe its allocations");
    };
    table.record_use = [](emm_manager *, emm_deviceptr, size_t, emm_stream) {
        return not_supported("order reuse behind other streams");
    };
    table.stream_notice = [](emm_manager *, emm_stream, uint32_t) -> emm_status { return EMM_OK; };
    table.set_access = [](emm_manager *, int32_t, uint32_t) {
        return not_supported("give other devices access to its memory");
    };
    table.get_stats = [](emm_manager *, emm_stats *ret_stats) -> emm_status {
        emm_stats zeros = {};
        zeros.struct_size = sizeof zeros;
        emm_copy_sized(ret_stats, &zeros);
        return EMM_OK;
    };
    table.get_device_total = [](const emm_host *, int32_t, size_t device_bytes, const char *const *,
                                size_t *ret_total) -> emm_status {
        *ret_total = device_bytes;
        return EMM_OK;
    };
    table.check_options = [](const emm_host *, const char *const *) -> emm_status {
        return EMM_OK;
    };
    return table;
}

} // namespace

const emm_plugin &default_slots() {
    static const emm_plugin table = make_table();
    return table;
}

} // namespace emm::core

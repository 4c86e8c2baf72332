/* A plugin as it was built when the interface was frozen: every slot answers with its own name. */
#include <emm/plugin.h>

struct emm_manager {
    const emm_host *host;
};

static emm_manager the_manager;

static emm_status answer(const char *slot) {
    return the_manager.host->fail(EMM_E_NOT_SUPPORTED, 0, slot);
}

static emm_status create(const emm_host *host, const emm_context_info *info,
                         const char *const *option_texts, emm_manager **ret_manager) {
    (void)option_texts;
    the_manager.host = host;
    if (info->struct_size < sizeof *info || !info->cuda_context) {
        return host->fail(EMM_E_PLUGIN_FAILED, 0, "a context info of another layout");
    }
    *ret_manager = &the_manager;
    return EMM_OK;
}

static emm_status destroy(emm_manager *self) {
    (void)self;
    return EMM_OK;
}

static emm_status memalloc(emm_manager *self, size_t size, emm_stream stream,
                           emm_deviceptr *ret_ptr) {
    (void)self, (void)size, (void)stream, (void)ret_ptr;
    return answer("slot memalloc");
}

static emm_status memfree(emm_manager *self, emm_deviceptr ptr, size_t size, emm_stream stream) {
    (void)self, (void)ptr, (void)size, (void)stream;
    return answer("slot memfree");
}

static emm_status memhostalloc(emm_manager *self, size_t size, uint32_t flags, void **ret_host,
                               emm_deviceptr *ret_device) {
    (void)self, (void)size, (void)flags, (void)ret_host, (void)ret_device;
    return answer("slot memhostalloc");
}

static emm_status memhostfree(emm_manager *self, void *host, size_t size, uint32_t flags,
                              emm_stream stream) {
    (void)self, (void)host, (void)size, (void)flags, (void)stream;
    return answer("slot memhostfree");
}

static emm_status mempin(emm_manager *self, void *host, size_t size, uint32_t flags,
                         emm_deviceptr *ret_device) {
    (void)self, (void)host, (void)size, (void)flags, (void)ret_device;
    return answer("slot mempin");
}

static emm_status memunpin(emm_manager *self, void *host, size_t size) {
    (void)self, (void)host, (void)size;
    return answer("slot memunpin");
}

static emm_status memallocmanaged(emm_manager *self, size_t size, uint32_t flags,
                                  emm_deviceptr *ret_ptr) {
    (void)self, (void)size, (void)flags, (void)ret_ptr;
    return answer("slot memallocmanaged");
}

static emm_status memfreemanaged(emm_manager *self, emm_deviceptr ptr, size_t size,
                                 emm_stream stream) {
    (void)self, (void)ptr, (void)size, (void)stream;
    return answer("slot memfreemanaged");
}

static emm_status get_memory_info(emm_manager *self, size_t *ret_free, size_t *ret_total) {
    (void)self, (void)ret_free, (void)ret_total;
    return answer("slot get_memory_info");
}

static emm_status get_ipc_handle(emm_manager *self, emm_deviceptr ptr, size_t size,
                                 emm_ipc_handle *ret_handle) {
    (void)self, (void)ptr, (void)size, (void)ret_handle;
    return answer("slot get_ipc_handle");
}

static emm_status release_ipc_handle(emm_manager *self, const emm_ipc_handle *handle) {
    (void)self, (void)handle;
    return answer("slot release_ipc_handle");
}

static emm_status reset(emm_manager *self) {
    (void)self;
    return answer("slot reset");
}

static emm_status defer_cleanup(emm_manager *self, uint32_t enter) {
    (void)self, (void)enter;
    return answer("slot defer_cleanup");
}

static emm_status trim(emm_manager *self, size_t keep_bytes, size_t *ret_released) {
    (void)self, (void)keep_bytes, (void)ret_released;
    return answer("slot trim");
}

static emm_status query(emm_manager *self, emm_deviceptr ptr, emm_block_info *ret_info) {
    (void)self, (void)ptr, (void)ret_info;
    return answer("slot query");
}

static emm_status record_use(emm_manager *self, emm_deviceptr ptr, size_t size, emm_stream stream) {
    (void)self, (void)ptr, (void)size, (void)stream;
    return answer("slot record_use");
}

static emm_status stream_notice(emm_manager *self, emm_stream stream, uint32_t notice) {
    (void)self, (void)stream, (void)notice;
    return answer("slot stream_notice");
}

static emm_status set_access(emm_manager *self, int32_t peer_device, uint32_t flags) {
    (void)self, (void)peer_device, (void)flags;
    return answer("slot set_access");
}

static emm_status get_stats(emm_manager *self, emm_stats *ret_stats) {
    (void)self, (void)ret_stats;
    return answer("slot get_stats");
}

static const emm_plugin table = {
    .struct_size = sizeof(emm_plugin),
    .interface_version = EMM_PLUGIN_ABI_MAJOR,
    .interface_minor = EMM_PLUGIN_ABI_MINOR,
    .name = "frozen",
    .version = "1.0",
    .description = "built from the frozen headers",
    .create = create,
    .destroy = destroy,
    .memalloc = memalloc,
    .memfree = memfree,
    .memhostalloc = memhostalloc,
    .memhostfree = memhostfree,
    .mempin = mempin,
    .memunpin = memunpin,
    .memallocmanaged = memallocmanaged,
    .memfreemanaged = memfreemanaged,
    .get_memory_info = get_memory_info,
    .get_ipc_handle = get_ipc_handle,
    .release_ipc_handle = release_ipc_handle,
    .reset = reset,
    .defer_cleanup = defer_cleanup,
    .trim = trim,
    .query = query,
    .record_use = record_use,
    .stream_notice = stream_notice,
    .set_access = set_access,
    .get_stats = get_stats,
};

EMM_PLUGIN_ENTRY(const emm_host *host) {
    the_manager.host = host;
    return &table;
}

/* A layer as it was built when the interface was frozen: it passes its slots on to those below. */
#include <emm/plugin_helpers.h>

struct emm_manager {
    const emm_plugin *below;
    emm_manager *const *below_managers;
};

static emm_manager the_manager;

static emm_status create(const emm_host *host, const emm_context_info *info,
                         const char *const *option_texts, emm_manager **ret_manager) {
    (void)option_texts;
    if (info->struct_size < sizeof *info || !info->below || !info->below->memalloc) {
        return host->fail(EMM_E_PLUGIN_FAILED, 0, "nothing is below");
    }
    the_manager.below = info->below;
    the_manager.below_managers = info->below_managers;
    *ret_manager = &the_manager;
    return EMM_OK;
}

static emm_status destroy(emm_manager *self) {
    (void)self;
    return EMM_OK;
}

static emm_status memalloc(emm_manager *self, size_t size, emm_stream stream,
                           emm_deviceptr *ret_ptr) {
    return EMM_BELOW(self, memalloc, size, stream, ret_ptr);
}

static emm_status memfree(emm_manager *self, emm_deviceptr ptr, size_t size, emm_stream stream) {
    return EMM_BELOW(self, memfree, ptr, size, stream);
}

static emm_status trim(emm_manager *self, size_t keep_bytes, size_t *ret_released) {
    return EMM_BELOW(self, trim, keep_bytes, ret_released);
}

static emm_status get_stats(emm_manager *self, emm_stats *ret_stats) {
    return EMM_BELOW(self, get_stats, ret_stats);
}

static const emm_plugin table = {
    .struct_size = sizeof(emm_plugin),
    .interface_version = EMM_PLUGIN_ABI_MAJOR,
    .interface_minor = EMM_PLUGIN_ABI_MINOR,
    .name = "frozen-layer",
    .version = "1.0",
    .description = "built from the frozen headers",
    .capabilities = ~EMM_PLUGIN_NEEDS_CURRENT,
    .create = create,
    .destroy = destroy,
    .memalloc = memalloc,
    .memfree = memfree,
    .trim = trim,
    .get_stats = get_stats,
};

EMM_LAYER_ENTRY(const emm_host *host) {
    (void)host;
    return &table;
}

/* frozen_plugin.c with the slots that came with 1.2. */
#include <emm/plugin.h>

#undef EMM_PLUGIN_ENTRY
#define EMM_PLUGIN_ENTRY static const emm_plugin *older_entry
#include "frozen_plugin.c"

#include <stddef.h>

static const emm_option options[] = {
    {"changes", "1", "A number that may change.", EMM_OPTION_COUNT, EMM_OPTION_CHANGES},
    {NULL, NULL, NULL, 0, 0}};

/* An older host tells less of a context. */
static emm_status create_for_any(const emm_host *host, const emm_context_info *info,
                                 const char *const *option_texts, emm_manager **ret_manager) {
    emm_context_info whole = {.struct_size = sizeof whole};
    if (info->struct_size < offsetof(emm_context_info, pool)) {
        return host->fail(EMM_E_PLUGIN_FAILED, 0, "a context info of another layout");
    }
    whole.cuda_context = info->cuda_context;
    return create(host, &whole, option_texts, ret_manager);
}

static emm_status pause_memory(emm_manager *self, uint32_t flags, size_t *ret_released) {
    (void)self, (void)flags, (void)ret_released;
    return answer("slot pause");
}

static emm_status resume_memory(emm_manager *self, uint32_t flags) {
    (void)self, (void)flags;
    return answer("slot resume");
}

static emm_status set_option(emm_manager *self, const char *key, const char *text) {
    (void)self, (void)key, (void)text;
    return answer("slot set_option");
}

static emm_status reset_peaks(emm_manager *self) {
    (void)self;
    return answer("slot reset_peaks");
}

EMM_API const emm_plugin *emm_plugin_entry_v1(const emm_host *host) {
    static emm_plugin newer;
    newer = *older_entry(host);
    newer.options = options;
    newer.create = create_for_any;
    newer.pause = pause_memory;
    newer.resume = resume_memory;
    newer.set_option = set_option;
    newer.reset_peaks = reset_peaks;
    return &newer;
}

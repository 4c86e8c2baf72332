/* fault: a layer that fails requests for device memory with EMM_E_OUT_OF_MEMORY, to test
 * whether a program survives. A failed request never reaches the plugin below. */
#include <emm/plugin_helpers.h>
#include <stdlib.h>

struct emm_manager {
    const emm_host *host;
    const emm_plugin *below;
    emm_manager *const *below_managers;
    uint64_t nth, every, seed, times, requests;
    double share;
};

static const emm_option options[] = {
    {"nth", "0", "the request that fails, counted from 1; 0: none", EMM_OPTION_COUNT, 0},
    {"every", "0", "one request in so many fails; 0: none", EMM_OPTION_COUNT, 0},
    {"share", "0", "the share of all requests that fails, from 0 to 1", EMM_OPTION_NUMBER, 0},
    {"seed", "1", "the seed that selects these requests", EMM_OPTION_COUNT, 0},
    {"times", "4", "how many tries of a request fail; emm trims and tries again", EMM_OPTION_COUNT,
     0},
    {NULL, NULL, NULL, 0, 0}};

/* The request that has failed last on this thread, and how often it still fails. emm trims before
 * it repeats one; without that the same size is another request. */
static __thread struct {
    const emm_manager *of;
    size_t size;
    uint64_t left;
    int was_trimmed;
} failing __attribute__((tls_model("initial-exec")));

static uint64_t count_of(const char *const *option_texts, const char *name) {
    return strtoull(emm_option_text(options, option_texts, name), NULL, 10);
}

/* Between 0 and 1, the same for the same seed and request (splitmix64). */
static double chance(uint64_t seed, uint64_t request) {
    uint64_t x = seed * UINT64_C(0x9e3779b97f4a7c15) + request * UINT64_C(0xbf58476d1ce4e5b9);
    x = (x ^ (x >> 30)) * UINT64_C(0xbf58476d1ce4e5b9);
    x = (x ^ (x >> 27)) * UINT64_C(0x94d049bb133111eb);
    return (double)((x ^ (x >> 31)) >> 11) / (double)(UINT64_C(1) << 53);
}

static int is_chosen(const emm_manager *self, uint64_t request) {
    return request == self->nth || (self->every && request % self->every == 0) ||
           (self->share > 0 && chance(self->seed, request) < self->share);
}

/* Counts only what the program asks for, not the repetitions of it. */
static int fails(emm_manager *self, size_t size) {
    if (failing.of != self || failing.size != size || !failing.was_trimmed) {
        const uint64_t request = __atomic_add_fetch(&self->requests, 1, __ATOMIC_RELAXED);
        failing.left = is_chosen(self, request) ? self->times : 0;
    }
    if (failing.left == 0) {
        failing.of = NULL;
        return 0;
    }
    failing.of = self;
    failing.size = size;
    failing.left--;
    failing.was_trimmed = 0;
    return 1;
}

static emm_status check_options(const emm_host *host, const char *const *option_texts) {
    const char *const share = emm_option_text(options, option_texts, "share");
    return strtod(share, NULL) > 1 ? emm_failf(host, EMM_E_PLUGIN_SPEC, 0,
                                               "option share: expected 0 to 1, found %.40s", share)
                                   : EMM_OK;
}

static emm_status create(const emm_host *host, const emm_context_info *info,
                         const char *const *option_texts, emm_manager **ret_manager) {
    const emm_status valid = check_options(host, option_texts);
    emm_manager *self = valid == EMM_OK ? calloc(1, sizeof *self) : NULL;
    if (!self) {
        return valid != EMM_OK
                   ? valid
                   : host->fail(EMM_E_OUT_OF_HOST_MEMORY, 0, "no host memory for the layer");
    }
    self->host = host;
    self->below = info->below;
    self->below_managers = info->below_managers;
    self->nth = count_of(option_texts, "nth");
    self->every = count_of(option_texts, "every");
    self->seed = count_of(option_texts, "seed");
    self->times = count_of(option_texts, "times");
    self->share = strtod(emm_option_text(options, option_texts, "share"), NULL);
    *ret_manager = self;
    return EMM_OK;
}

static emm_status destroy(emm_manager *self) {
    free(self);
    return EMM_OK;
}

static emm_status memalloc(emm_manager *self, size_t size, emm_stream stream,
                           emm_deviceptr *ret_ptr) {
    if (fails(self, size)) {
        return emm_failf(self->host, EMM_E_OUT_OF_MEMORY, 0,
                         "layer fault: this request of %zu bytes was to fail", size);
    }
    return EMM_BELOW(self, memalloc, size, stream, ret_ptr);
}

static emm_status memfree(emm_manager *self, emm_deviceptr ptr, size_t size, emm_stream stream) {
    return EMM_BELOW(self, memfree, ptr, size, stream);
}

static emm_status trim(emm_manager *self, size_t keep_bytes, size_t *ret_released) {
    failing.was_trimmed = 1;
    return EMM_BELOW(self, trim, keep_bytes, ret_released);
}

static const emm_plugin table = {
    .struct_size = sizeof(emm_plugin),
    .interface_version = EMM_PLUGIN_ABI_MAJOR,
    .interface_minor = EMM_PLUGIN_ABI_MINOR,
    .name = "fault",
    .version = "0.1",
    .description = "Fails the Nth, every Nth or a share of the requests for device memory",
    .capabilities = ~EMM_PLUGIN_NEEDS_CURRENT, /* the member below decides */
    .options = options,
    .create = create,
    .destroy = destroy,
    .memalloc = memalloc,
    .memfree = memfree,
    .trim = trim,
    .check_options = check_options};

EMM_LAYER_ENTRY(const emm_host *host) {
    (void)host;
    return &table;
}

/* count: a layer that counts requests and frees of device memory, and changes nothing. It is
 * a template (`emm new --layer`): a filled slot calls the slot below. For a slot that the layer
 * leaves out, emm calls the slot below itself. */
#include <emm/plugin_helpers.h>
#include <stdlib.h>
#include <sys/types.h>
#include <unistd.h>

/* One for each thread: an atomic addition would cost more than all else here. A record outlives its
 * thread, because what it has counted still counts. */
struct counts {
    uint64_t requests, bytes, failures, frees;
    struct counts *next;
};

struct emm_manager {
    const emm_host *host;
    const emm_plugin *below;
    emm_manager *const *below_managers;
};

static const emm_option options[] = {
    {"every", "0", "log one line for each so many requests of a thread; 0: only at the end",
     EMM_OPTION_COUNT, 0},
    {NULL, NULL, NULL, 0, 0}};

static struct counts *all; /* of all threads, and all managers */
static uint64_t every;
static const emm_host *the_host;
static pid_t process; /* a forked child has counted nothing */
static __thread struct counts *own __attribute__((tls_model("initial-exec")));

static struct counts *counts_of_thread(void) {
    if (!own) {
        struct counts *made = calloc(1, sizeof *made);
        if (made) {
            made->next = __atomic_load_n(&all, __ATOMIC_RELAXED);
            while (!__atomic_compare_exchange_n(&all, &made->next, made, 0, __ATOMIC_RELEASE,
                                                __ATOMIC_RELAXED)) {
            }
        }
        own = made;
    }
    return own;
}

/* Only its thread writes it. */
static void add(uint64_t *counter, uint64_t more) {
    __atomic_store_n(counter, *counter + more, __ATOMIC_RELAXED);
}

static void tell(void) {
    struct counts sum = {0, 0, 0, 0, NULL};
    char line[200];
    for (struct counts *at = __atomic_load_n(&all, __ATOMIC_ACQUIRE); at; at = at->next) {
        sum.requests += __atomic_load_n(&at->requests, __ATOMIC_RELAXED);
        sum.bytes += __atomic_load_n(&at->bytes, __ATOMIC_RELAXED);
        sum.failures += __atomic_load_n(&at->failures, __ATOMIC_RELAXED);
        sum.frees += __atomic_load_n(&at->frees, __ATOMIC_RELAXED);
    }
    snprintf(line, sizeof line,
             "count: %llu requests of %llu bytes, of which %llu failed; %llu frees",
             (unsigned long long)sum.requests, (unsigned long long)sum.bytes,
             (unsigned long long)sum.failures, (unsigned long long)sum.frees);
    the_host->log(EMM_LOG_INFO, line);
}

__attribute__((destructor)) static void tell_at_exit(void) {
    if (the_host && getpid() == process) {
        tell();
    }
}

static emm_status create(const emm_host *host, const emm_context_info *info,
                         const char *const *option_texts, emm_manager **ret_manager) {
    emm_manager *self = calloc(1, sizeof *self);
    if (!self) {
        return host->fail(EMM_E_OUT_OF_HOST_MEMORY, 0, "no host memory for the layer");
    }
    *self = (emm_manager){host, info->below, info->below_managers};
    __atomic_store_n(&every, strtoull(emm_option_text(options, option_texts, "every"), NULL, 10),
                     __ATOMIC_RELAXED);
    __atomic_store_n(&process, getpid(), __ATOMIC_RELAXED);
    __atomic_store_n(&the_host, host, __ATOMIC_RELAXED);
    *ret_manager = self;
    return EMM_OK;
}

/* emm destroys the plugin below afterwards. */
static emm_status destroy(emm_manager *self) {
    free(self);
    return EMM_OK;
}

static emm_status memalloc(emm_manager *self, size_t size, emm_stream stream,
                           emm_deviceptr *ret_ptr) {
    const emm_status status = EMM_BELOW(self, memalloc, size, stream, ret_ptr);
    struct counts *const counts = counts_of_thread();
    if (counts) {
        const uint64_t often = __atomic_load_n(&every, __ATOMIC_RELAXED);
        add(&counts->requests, 1);
        add(&counts->bytes, size);
        add(&counts->failures, status < EMM_OK);
        if (often && counts->requests % often == 0) {
            tell();
        }
    }
    return status; /* as it is: its description, if it failed, stays */
}

static emm_status memfree(emm_manager *self, emm_deviceptr ptr, size_t size, emm_stream stream) {
    const emm_status status = EMM_BELOW(self, memfree, ptr, size, stream);
    struct counts *const counts = counts_of_thread();
    if (counts) {
        add(&counts->frees, status >= EMM_OK);
    }
    return status;
}

static const emm_plugin table = {.struct_size = sizeof(emm_plugin),
                                 .interface_version = EMM_PLUGIN_ABI_MAJOR,
                                 .interface_minor = EMM_PLUGIN_ABI_MINOR,
                                 .name = "count",
                                 .version = "0.1",
                                 .description = "Counts requests and frees of device memory",
                                 .capabilities =
                                     ~EMM_PLUGIN_NEEDS_CURRENT, /* the member below decides */
                                 .options = options,
                                 .create = create,
                                 .destroy = destroy,
                                 .memalloc = memalloc,
                                 .memfree = memfree};

EMM_LAYER_ENTRY(const emm_host *host) {
    (void)host;
    return &table;
}

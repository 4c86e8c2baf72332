/* A memory manager for emm in C: cuMemAlloc with rounded sizes. It knows what is live, so that it
 * refuses a wrong free and can give up everything. emm/plugin.h says more about each function. */
#include <emm/plugin_helpers.h>
#include <pthread.h>
#include <stdlib.h>

/* CUresult is an int; with these, cuda.h is not needed. */
typedef int (*mem_alloc)(emm_deviceptr *ret_ptr, size_t size);
typedef int (*mem_free)(emm_deviceptr ptr);
typedef int (*exchange_mode)(int *mode); /* of the thread, towards streams that capture */
typedef int (*is_capturing)(emm_stream stream, int *ret_status);
typedef int (*get_id)(void *cuda_context, unsigned long long *ret_id);
enum { success = 0, out_of_memory = 2, deinitialized = 4, capture_implicit = 906 };
enum { relaxed = 2, bucket_count = 4096 };

struct block {
    emm_deviceptr ptr;
    size_t size;
    emm_manager *manager;
    struct block *next;
};

struct emm_manager {
    const emm_host *host;
    emm_context *context;
    void *cuda_context; /* it may have died, and its addresses may be another context's */
    uint64_t context_id;
    get_id cuCtxGetId;
    mem_alloc cuMemAlloc;
    mem_free cuMemFree;
    exchange_mode exchange;
    is_capturing cuStreamIsCapturing;
    uint64_t granule;
    pthread_mutex_t mutex; /* around `live` and `users`; never held in a driver call */
    struct block *live[bucket_count];
    size_t users; /* emm until destroy, and the pending frees, which may run after destroy */
};

static const emm_option options[] = {
    {"granule", "512|64KiB|2MiB", "sizes are rounded up to a multiple", EMM_OPTION_CHOICE, 0},
    {NULL, NULL, NULL, 0, 0}};

static emm_status create(const emm_host *host, const emm_context_info *info,
                         const char *const *option_texts, emm_manager **ret_manager) {
    emm_manager *self = calloc(1, sizeof *self);
    if (!self) {
        return host->fail(EMM_E_OUT_OF_HOST_MEMORY, 0, "no host memory for a manager");
    }
    self->host = host;
    self->context = info->context;
    self->cuda_context = info->cuda_context;
    self->context_id = info->context_id;
    self->cuCtxGetId = (get_id)host->driver("cuCtxGetId", 12000);
    self->cuMemAlloc = (mem_alloc)host->driver("cuMemAlloc", 12000);
    self->cuMemFree = (mem_free)host->driver("cuMemFree", 12000);
    self->exchange = (exchange_mode)host->driver("cuThreadExchangeStreamCaptureMode", 12000);
    self->cuStreamIsCapturing = (is_capturing)host->driver("cuStreamIsCapturing", 12000);
    emm_parse_size(emm_option_text(options, option_texts, "granule"), &self->granule);
    if (!self->cuMemAlloc || !self->cuMemFree || !self->exchange || !self->cuStreamIsCapturing ||
        !self->cuCtxGetId) {
        free(self);
        return host->fail(EMM_E_NO_DRIVER, 0,
                          "this driver lacks a function that the manager calls");
    }
    pthread_mutex_init(&self->mutex, NULL);
    self->users = 1;
    *ret_manager = self;
    return EMM_OK;
}

static size_t round_up(const emm_manager *self, size_t size) {
    return (size + self->granule - 1) / self->granule * self->granule;
}

/* Where the block at `ptr` hangs, or would. */
static struct block **place_of(emm_manager *self, emm_deviceptr ptr) {
    struct block **place = &self->live[(ptr >> 9) % bucket_count];
    while (*place && (*place)->ptr != ptr) {
        place = &(*place)->next;
    }
    return place;
}

static void add(emm_manager *self, struct block *block) {
    block->next = NULL;
    pthread_mutex_lock(&self->mutex);
    *place_of(self, block->ptr) = block;
    pthread_mutex_unlock(&self->mutex);
}

/* A graph uses its memory at every launch, long after the captured free. A plugin can serve a
 * capturing stream only if the plugin holds that memory until the graph is destroyed, as
 * passthrough does. The legacy stream is refused while a stream that synchronizes with it captures.
 */
static emm_status refuse_capture(const emm_manager *self, emm_stream stream) {
    int status = 0;
    const int result =
        stream == EMM_STREAM_UNORDERED ? success : self->cuStreamIsCapturing(stream, &status);
    if (result == capture_implicit || (result == success && status != 0)) {
        return self->host->fail(EMM_E_CAPTURING, 0,
                                "the stream is capturing, which template-c cannot serve");
    }
    if (result != success && result != deinitialized) { /* not knowing is no answer */
        return self->host->fail(EMM_E_DRIVER, result, "cuStreamIsCapturing failed");
    }
    return EMM_OK;
}

/* A call that fails is made once more: otherwise the thread would keep an unwanted mode. */
static int exchange(exchange_mode call, int *mode) {
    const int result = call(mode);
    return result == success ? result : call(mode);
}

/* `stream` does not matter: any stream may use fresh memory at once. */
static emm_status memalloc(emm_manager *self, size_t size, emm_stream stream,
                           emm_deviceptr *ret_ptr) {
    const size_t rounded = round_up(self, size);
    const emm_status status = refuse_capture(self, stream);
    if (status != EMM_OK) {
        return status;
    }
    struct block *block = malloc(sizeof *block);
    if (!block) {
        return self->host->fail(EMM_E_OUT_OF_HOST_MEMORY, 0, "no host memory for a block's record");
    }
    int mode = relaxed; /* otherwise cuMemAlloc would invalidate captures of other streams */
    const int changed = exchange(self->exchange, &mode) == success;
    const int result = rounded < size ? out_of_memory : self->cuMemAlloc(&block->ptr, rounded);
    if (changed) {
        exchange(self->exchange, &mode);
    }
    if (result != success) {
        free(block);
        return emm_failf(self->host, result == out_of_memory ? EMM_E_OUT_OF_MEMORY : EMM_E_DRIVER,
                         result, "cuMemAlloc of %zu bytes failed: error %d", rounded, result);
    }
    *block = (struct block){block->ptr, rounded, self, NULL};
    *ret_ptr = block->ptr;
    add(self, block);
    return EMM_OK;
}

static int free_memory(const emm_manager *self, emm_deviceptr ptr) {
    int mode = relaxed;
    const int changed = exchange(self->exchange, &mode) == success;
    const int result = self->cuMemFree(ptr);
    if (changed) {
        exchange(self->exchange, &mode);
    }
    return result == deinitialized ? success : result; /* the driver's end has freed it */
}

/* Addresses of a dead context may belong to another context, so they are dropped. */
static uint32_t what_to_do(const emm_manager *self) {
    unsigned long long id = 0;
    const int known = self->cuCtxGetId(self->cuda_context, &id) == success ||
                      self->cuCtxGetId(self->cuda_context, &id) == success;
    return known && id == self->context_id ? EMM_DEFERRED_RUN : EMM_DEFERRED_DROP;
}

/* The last user gives everything up. It tries twice, because no later call may come. */
static void leave(emm_manager *self) {
    pthread_mutex_lock(&self->mutex);
    const size_t users = --self->users;
    pthread_mutex_unlock(&self->mutex);
    if (users > 0) {
        return;
    }
    for (size_t i = 0; i < bucket_count; i++) {
        for (struct block *block; (block = self->live[i]); free(block)) {
            self->live[i] = block->next;
            if (what_to_do(self) == EMM_DEFERRED_RUN && free_memory(self, block->ptr) != success) {
                free_memory(self, block->ptr);
            }
        }
    }
    pthread_mutex_destroy(&self->mutex);
    free(self);
}

/* Runs when emm flushes its queue; after EMM_DEFERRED_DROP the address is not ours any more. A
 * block that the driver refuses to take back is live again. */
static emm_status release(void *argument, uint32_t what) {
    struct block *block = argument;
    emm_manager *const self = block->manager;
    const int result = what == EMM_DEFERRED_RUN ? free_memory(self, block->ptr) : success;
    emm_status status = EMM_OK;
    if (result == success) {
        free(block);
    } else {
        status = emm_failf(self->host, EMM_E_DRIVER, result, "cuMemFree of 0x%llx failed: error %d",
                           block->ptr, result);
        add(self, block);
    }
    leave(self);
    return status;
}

/* `stream` does not matter: cuMemFree waits for all of them. */
static emm_status memfree(emm_manager *self, emm_deviceptr ptr, size_t size, emm_stream stream) {
    const emm_status status = refuse_capture(self, stream);
    if (status != EMM_OK) {
        return status;
    }
    pthread_mutex_lock(&self->mutex);
    struct block **const place = place_of(self, ptr), *const block = *place;
    const int fits = block && (size == 0 || round_up(self, size) == block->size);
    if (fits) {
        *place = block->next;
        self->users++;
    }
    pthread_mutex_unlock(&self->mutex);
    if (!fits) {
        return block ? emm_failf(self->host, EMM_E_INVALID_VALUE, 0,
                                 "0x%llx was not allocated with %zu bytes", ptr, size)
                     : emm_failf(self->host, EMM_E_NOT_OWNED, 0,
                                 "no live allocation of this manager is at 0x%llx", ptr);
    }
    return self->host->defer(self->context, release, block, block->size) == EMM_OK
               ? EMM_OK
               : release(block, what_to_do(self)); /* emm has no memory for its queue */
}

static emm_status destroy(emm_manager *self) {
    leave(self);
    return EMM_OK;
}

static const emm_plugin table = {.struct_size = sizeof(emm_plugin),
                                 .interface_version = EMM_PLUGIN_ABI_MAJOR,
                                 .interface_minor = EMM_PLUGIN_ABI_MINOR,
                                 .name = "template-c",
                                 .version = "0.1",
                                 .description = "cuMemAlloc with rounded sizes",
                                 .capabilities = EMM_PLUGIN_NEEDS_CURRENT,
                                 .options = options,
                                 .create = create,
                                 .destroy = destroy,
                                 .memalloc = memalloc,
                                 .memfree = memfree};

EMM_PLUGIN_ENTRY(const emm_host *host) {
    return &table;
}

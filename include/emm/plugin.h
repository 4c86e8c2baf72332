/*
 * emm/plugin.h: the contract between emm and a memory-manager plugin. C99 and C++11; compiles alone
 * and needs no cuda.h. The contract extends NBEP 7, "CUDA External Memory Management Plugins". This
 * comment sums up the rules that concern all slots (the functions of a plugin's table);
 * plugins/README.md ("Rules") has the full rules. emm/plugin_helpers.h has inline helpers in C;
 * emm/plugin.hpp makes a table from a C++ class. To begin, copy plugins/template-c or
 * plugins/template-cpp, as `emm new` does.
 *
 * A plugin is a shared library that exports one C symbol and nothing else,
 *
 *     const emm_plugin *emm_plugin_entry_v1(const emm_host *host);
 *
 * The function returns a static, read-only table and does nothing more. The plugin links neither a
 * CUDA library nor libemm: the driver comes from host->driver. emm loads a plugin once and never
 * unloads it. emm calls `create` for each CUDA context, and for each named pool of a program
 * (emm_context_named). The returned manager serves that context or pool until `destroy`. The slots
 * create, destroy, memalloc and memfree are required. If another slot is NULL, emm itself serves
 * its calls. A layer is a library that exports emm_layer_entry_v1 instead. It stands over a plugin,
 * and changes some of the plugin's slots.
 *
 * Versions: the symbol's name contains the major version. Minor versions add members at the end of
 * structs only. emm and plugin read members beyond `struct_size` as zero, and slots as NULL.
 *
 * Calls: many threads call slots at once. Any context, or none, may be current on them. Two tags
 * restrict this:
 *   [context-current]  the manager's context is current on the calling thread
 *   [exclusive]        emm makes no other call for this manager at the same time
 * Outputs come last, are never NULL, and are written on success only. A function returns EMM_OK, a
 * positive notice or a negative error of emm/status.h. Before a function returns an error, it
 * describes the error with host->fail. Sizes are in bytes. Only a free may pass size 0, if its
 * caller does not know the size. No address is 0. emm holds no lock while it calls a plugin. A
 * plugin holds no lock of its own while it calls host->defer or host->pressure, or waits for the
 * device. No C++ exception, longjmp or pthread_exit leaves a function. In a forked child in which
 * emm's functions answer EMM_E_FORKED, emm calls no slot.
 *
 * Streams: NULL and 1 are the legacy default stream; 2 is the calling thread's own stream.
 *   - Memory allocated on stream S is for work put on S after the call. Memory freed on S may serve
 *     a request on S at once. The memory may serve another stream once that stream waits for S.
 *   - Memory allocated with EMM_STREAM_UNORDERED is for every stream of the context at once. Memory
 *     freed with this value may serve a request after the work that was in the context's
 *     streams at the free.
 * A plugin touches a stream only in a call that names the stream, or while the stream is
 * registered (stream_notice). A plugin leaves captures valid, and keeps memory of a graph until all
 * copies of the graph are gone.
 */
#ifndef EMM_PLUGIN_H
#define EMM_PLUGIN_H

#include <emm/status.h>
#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

#define EMM_PLUGIN_ABI_MAJOR 1u
#define EMM_PLUGIN_ABI_MINOR 2u
#define EMM_PLUGIN_ENTRY_SYMBOL "emm_plugin_entry_v1"
#define EMM_LAYER_ENTRY_SYMBOL "emm_layer_entry_v1"

struct CUctx_st;
struct CUstream_st;

typedef unsigned long long emm_deviceptr; /* CUdeviceptr's own type */
typedef struct CUstream_st *emm_stream;   /* CUstream */
typedef struct emm_manager emm_manager;   /* the plugin's; opaque to emm */
typedef struct emm_context emm_context;   /* emm's; opaque to plugins */
/* Memory for other processes: at the end of this header. */
typedef struct emm_ipc_handle emm_ipc_handle;
typedef struct emm_ipc_part emm_ipc_part;
typedef struct emm_ipc_source emm_ipc_source;
typedef void (*emm_function)(void); /* cast to the entry's own type before calling it */

#ifdef __cplusplus
#define EMM_STREAM_LEGACY (static_cast<emm_stream>(nullptr))
#define EMM_STREAM_OF(number) (reinterpret_cast<emm_stream>(uintptr_t(number)))
#else
#define EMM_STREAM_LEGACY ((emm_stream)0)
#define EMM_STREAM_OF(number) ((emm_stream)(uintptr_t)(number))
#endif
#define EMM_STREAM_PER_THREAD EMM_STREAM_OF(2)
#define EMM_STREAM_UNORDERED EMM_STREAM_OF(UINTPTR_MAX)

/* emm_plugin.capabilities. emm ignores unknown bits. With layers, a capability holds only if the
 * plugin and each layer set its bit. A layer that restricts nothing sets all
 * bits but one: ~EMM_PLUGIN_NEEDS_CURRENT. Two bits differ: NEEDS_CURRENT holds if the plugin or
 * any layer sets the bit, OPAQUE if the plugin does.
 *   NEEDS_CURRENT   emm makes the manager's context current around each call that has a manager. If
 *                   the driver refuses, emm makes only these calls: destroy, defer_cleanup(0),
 *                   and stream_notice for the end of a capture or stream
 *   STREAM_ORDERED  memfree on a stream does not wait for the stream
 *   CACHES          the plugin keeps freed memory for later requests
 *   CAPTURE         memalloc and memfree work on a capturing stream. Without this bit both may
 *                   answer EMM_E_CAPTURING on such a stream
 *   PAUSE_KEEPS     pause takes EMM_PAUSE_KEEP
 *   PAUSE_SHARES    pause leaves exported memory in place; without this bit, pause answers
 *                   EMM_E_BUSY while an export has not ended
 *   OPAQUE          an allocator behind the plugin does not report how much memory it keeps.
 *                   reserved_bytes and cached_bytes are then estimates; trim gives back everything
 *                   or nothing */
#define EMM_PLUGIN_NEEDS_CURRENT (UINT64_C(1) << 0)
#define EMM_PLUGIN_STREAM_ORDERED (UINT64_C(1) << 1)
#define EMM_PLUGIN_CACHES (UINT64_C(1) << 2)
#define EMM_PLUGIN_CAPTURE (UINT64_C(1) << 3)
#define EMM_PLUGIN_PAUSE_KEEPS (UINT64_C(1) << 4)
#define EMM_PLUGIN_PAUSE_SHARES (UINT64_C(1) << 5)
#define EMM_PLUGIN_OPAQUE (UINT64_C(1) << 6)

/* Log levels of emm_host.log, most severe first. */
#define EMM_LOG_ERROR 1
#define EMM_LOG_WARN 2
#define EMM_LOG_INFO 3
#define EMM_LOG_DEBUG 4

/* Kinds of memory. */
#define EMM_KIND_DEVICE 1u
#define EMM_KIND_PINNED 2u /* page-locked host memory */
#define EMM_KIND_MAPPED 3u /* page-locked host memory with a device address */
#define EMM_KIND_MANAGED 4u
#define EMM_KIND_IPC 5u      /* another process's device memory */
#define EMM_KIND_EXTERNAL 6u /* memory that emm did not allocate */

/* Flags of memhostalloc, memhostfree and mempin: CU_MEMHOSTALLOC_*, CU_MEMHOSTREGISTER_*. emm
 * refuses other flags, and flags that a slot does not take, before it calls a plugin. */
#define EMM_HOST_PORTABLE 1u       /* pinned for all contexts, so all of them may use the memory */
#define EMM_HOST_MAPPED 2u         /* with a device address */
#define EMM_HOST_WRITE_COMBINED 4u /* memhostalloc only */
#define EMM_HOST_READ_ONLY 8u      /* mempin only: the device will not write to this memory */

/* Flags of memallocmanaged, exactly one: CU_MEM_ATTACH_*. */
#define EMM_ATTACH_GLOBAL 1u
#define EMM_ATTACH_HOST 2u

/* stream_notice */
#define EMM_STREAM_REGISTERED 1u     /* the stream exists until its RETIRING notice */
#define EMM_STREAM_RETIRING 2u       /* the stream ends soon, but is usable during this call */
#define EMM_STREAM_CAPTURE_BEGINS 3u /* the stream is about to begin or join a capture */
#define EMM_STREAM_CAPTURE_ENDS 4u   /* it ended or never began; one for each CAPTURE_BEGINS */

/* Flags of pause: exactly one of the first two. */
#define EMM_PAUSE_KEEP 1u     /* resume brings the content back, from host memory */
#define EMM_PAUSE_DISCARD 2u  /* the content is undefined after resume */
#define EMM_PAUSE_UNSHARED 4u /* pause refuses with EMM_E_BUSY while an export lasts */

/* Flags of resume. */
#define EMM_RESUME_KEEP_COPY 1u /* keep the copy's host memory for the next pause */

/* set_access: CU_MEM_ACCESS_FLAGS_PROT_*. */
#define EMM_ACCESS_NONE 0u
#define EMM_ACCESS_READ 1u
#define EMM_ACCESS_READ_WRITE 3u

/* --- services that emm offers to plugins ----------------------------------------------------- */

/*
 * The `what` of a pending free. RUN: free the memory. DROP: the context has died, and its addresses
 * may already belong to another allocation. So make no driver call, and release only the
 * resources of `argument` itself.
 */
#define EMM_DEFERRED_DROP 0u
#define EMM_DEFERRED_RUN 1u

/* The function of a pending free. emm calls it once, on any thread, with any or no current context.
 * If another thread is running the pending frees, the call may come after `destroy` of the manager.
 * So `argument` must own everything that the call uses. */
typedef emm_status (*emm_deferred)(void *argument, uint32_t what);

/*
 * The host's services. The struct lives as long as the process. Any thread may call the services,
 * with any or no current context.
 */
typedef struct emm_host {
    uint32_t struct_size; /* bytes of this struct that the host fills */
    uint32_t abi_major;   /* EMM_PLUGIN_ABI_MAJOR of the host */
    uint32_t abi_minor;
    uint32_t reserved;   /* 0 */
    const char *version; /* the host's own version, for people */

    /* Writes one line to emm's log (EMM_LOG). `level`: EMM_LOG_*; `text`: UTF-8, no newline. */
    void (*log)(int32_t level, const char *text);

    /* Describes the error that the plugin is about to return. `driver_result` is the CUresult
     * behind the error, or 0; `text` is one UTF-8 sentence, which emm copies. Returns `code`, so
     * that a plugin can write `return host->fail(...)`. The description belongs to the calling
     * thread. */
    emm_status (*fail)(emm_status code, int32_t driver_result, const char *text);

    /* The driver's entry point `name` (unversioned: "cuMemAlloc"), as cuGetProcAddress gives it.
     * The entry has the signature of CUDA `cuda_version` (12000 is 12.0). NULL if the driver in use
     * has no such entry. A plugin that gets its entries here links no CUDA library, and runs on the
     * simulated driver too. */
    emm_function (*driver)(const char *name, int32_t cuda_version);

    /*
     * Puts a free on the context's queue of pending deallocations. emm runs the free when the queue
     * passes its limits, possibly before the return. emm also runs the free on out of memory, trim,
     * pause, reset and emm_context_retire. In a section of defer_cleanup only reset and
     * emm_context_retire run the free. While a capture is announced (stream_notice), the limits do
     * not count, and the free runs in relaxed capture mode. `bytes` counts towards the limits. If
     * the call fails, emm has not queued the free, and the plugin must free the memory itself.
     *   EMM_E_OUT_OF_HOST_MEMORY   no memory for the entry
     */
    emm_status (*defer)(emm_context *context, emm_deferred function, void *argument, size_t bytes);

    /*
     * Asks the application's pressure callback to give back at least `bytes` of this context's
     * memory. Returns the bytes that the callback reports; 0 without a callback, or from within a
     * callback. The application frees memory during the call, so hold no lock.
     */
    size_t (*pressure)(emm_context *context, size_t bytes);

    /*
     * A plugin's get_ipc_handle calls this for memory that other processes open by file descriptor.
     * A thread of the host serves the parts of `source` to processes of this user that have the
     * handle. When a process opens the handle, the host exports each part
     * (cuMemExportToShareableHandle), and keeps no descriptor. So create the parts with
     * CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR. The call fills the plugin's members of *ret_handle:
     * kind, handle, offset, size and exported_size. The parts belong to the plugin. Leave the parts
     * unchanged until withdraw_ipc has returned. Before emm calls reset or destroy for the
     * context's manager, the host itself ends the service.
     *   EMM_E_INVALID_VALUE        `kind` is unknown, or the allocation does not lie in the parts
     *   EMM_E_OUT_OF_HOST_MEMORY   the host has no memory, socket or thread for the service
     */
    emm_status (*serve_ipc)(emm_context *context, const emm_ipc_source *source,
                            emm_ipc_handle *ret_handle);

    /*
     * A plugin's release_ipc_handle calls this, to end the service that serve_ipc began. After the
     * return the host no longer touches the parts. The call may wait for a few driver calls, so
     * hold no lock. Processes that have the memory open keep the memory: the driver frees a part
     * when no process has the part open.
     *   EMM_E_NOT_OWNED            the host does not serve this handle, or no longer
     */
    emm_status (*withdraw_ipc)(emm_context *context, const emm_ipc_handle *handle);
} emm_host;

/* The context that a manager serves. Valid during `create` only: copy the members that you need. */
typedef struct emm_context_info {
    uint32_t struct_size;
    int32_t device;                /* the device's ordinal in this process */
    struct CUctx_st *cuda_context; /* the CUcontext */
    uint64_t context_id;           /* cuCtxGetId: never reused, unlike the handle */
    emm_context *context;          /* for host->defer and host->pressure */
    uint32_t primary;              /* 1: the device's primary context */
    uint32_t reserved;             /* 0 */
    uint8_t device_uuid[16];

    /* --- since 1.2 --- */

    const char *pool; /* the name of a named pool; "": the CUDA context's own manager. Lives as long
                         as the process */
    emm_context *group; /* the CUDA context's own emm_context; the same for all its pools */

    /* For a layer; else NULL. `below` is the table of slots that the layer may call: slots of the
     * layers under this layer, of the plugin, or of emm. For each slot, below_managers has the
     * manager to pass:
     *     below->trim(below_managers[EMM_SLOT_INDEX(trim)], ...)
     * emm itself calls some slots of each layer and of the plugin, such as create and reset. These
     * slots are NULL in `below`. Both pointers stay valid until `destroy` returns. */
    const struct emm_plugin *below;
    emm_manager *const *below_managers;
} emm_context_info;

/*
 * emm_option.kind: how the host checks a value before `create`. A choice is one of the words that
 * default_value lists, "a|b|c"; the first word is the default. A library (since minor 2) is the
 * absolute path of a file. emm refuses the file, like a plugin's file, if other users could
 * have written to it.
 */
#define EMM_OPTION_TEXT 1u   /* anything */
#define EMM_OPTION_SIZE 2u   /* bytes: 4096, 64KiB, 8MiB, 1.5GiB */
#define EMM_OPTION_COUNT 3u  /* a whole number, 0 or more */
#define EMM_OPTION_NUMBER 4u /* a decimal number, 0 or more: 0.5 */
#define EMM_OPTION_FLAG 5u   /* 0 or 1 */
#define EMM_OPTION_CHOICE 6u
#define EMM_OPTION_LIBRARY 7u

/* emm_option.reserved, since minor 2: set_option may change the option while its manager serves. */
#define EMM_OPTION_CHANGES 1u

/* One option of a plugin. The layout is fixed for this major version. */
typedef struct emm_option {
    const char *name;          /* lower case, digits and '_'; NULL ends the array */
    const char *default_value; /* NULL: no value unless the user gives one */
    const char *help;          /* one sentence */
    uint32_t kind;
    uint32_t reserved; /* 0, or EMM_OPTION_CHANGES */
} emm_option;

/*
 * The figures of get_stats, up to the struct_size that the caller has set. The memory in
 * reserved_bytes and paused_bytes is live, cached or pending: each byte counts in at most one of
 * live_bytes, cached_bytes and pending_bytes. Bytes that rounding adds to live allocations may
 * count in none of them.
 */
typedef struct emm_stats {
    uint32_t struct_size; /* in: sizeof(emm_stats) of the caller */
    uint32_t reserved;
    uint64_t live_bytes;          /* device memory handed out, in the sizes of the requests */
    uint64_t live_count;          /* allocations behind live_bytes */
    uint64_t cached_bytes;        /* device memory held for later requests */
    uint64_t reserved_bytes;      /* device memory taken from the driver */
    uint64_t peak_live_bytes;     /* the highest live_bytes, or an upper bound */
    uint64_t peak_reserved_bytes; /* the highest reserved_bytes */
    uint64_t allocations;         /* successful memalloc calls so far */
    uint64_t frees;               /* successful memfree calls so far */
    uint64_t failures;            /* memalloc calls that failed */
    uint64_t pending_bytes;       /* freed, but still in use on the device, or deferred */
    uint64_t host_live_bytes;     /* pinned host memory handed out */
    uint64_t host_reserved_bytes; /* pinned host memory taken from the driver */
    /*
     * The largest piece of cached_bytes that a request on some stream could get without waiting. 0:
     * no such piece, or the plugin does not know. Since minor 1.
     */
    uint64_t largest_free_block;
    uint64_t paused_bytes;  /* the most that resume takes from the driver. Since minor 2 */
    uint64_t spilled_bytes; /* host memory instead, in reserved_bytes. Since minor 2 */
} emm_stats;

/* The answer of query, up to the struct_size that the caller has set. */
typedef struct emm_block_info {
    uint32_t struct_size; /* in: sizeof(emm_block_info) of the caller */
    uint32_t kind;        /* EMM_KIND_* */
    emm_deviceptr base;   /* the allocation's first address */
    uint64_t size;        /* of the allocation */
    int32_t device;       /* ordinal */
    uint32_t reserved;
} emm_block_info;

/* --- slots that a plugin offers to emm ------------------------------------------------------- */

typedef struct emm_plugin {
    uint32_t struct_size;       /* sizeof(emm_plugin) where the plugin was compiled */
    uint32_t interface_version; /* EMM_PLUGIN_ABI_MAJOR */
    uint32_t interface_minor;   /* EMM_PLUGIN_ABI_MINOR */
    uint32_t reserved;          /* 0 */
    const char *name;           /* required: short, lower case; "pool" */
    const char *version;        /* the plugin's own, for people; may be NULL */
    const char *description;    /* one sentence; may be NULL */
    uint64_t capabilities;      /* EMM_PLUGIN_* */
    const emm_option *options;  /* ends with a NULL name; NULL: the plugin takes no options */

    /*
     * Makes the manager of one context. `option_texts[i]` is the text for options[i]: the value
     * that the user gave, else the default, else NULL. emm has checked keys and values against
     * `options`; the texts live as long as the process. On success the host owns *ret_manager until
     * `destroy`. After a failure nothing remains, and emm calls create again at the next request. A
     * CUDA context may get several managers (emm_context_named), whose memory stays apart.
     * Required. [context-current] [exclusive]
     *   EMM_E_PLUGIN_SPEC          an option's value makes no sense; say which option
     *   EMM_E_OUT_OF_MEMORY, EMM_E_OUT_OF_HOST_MEMORY, EMM_E_DRIVER, EMM_E_NOT_SUPPORTED
     */
    emm_status (*create)(const emm_host *host, const emm_context_info *info,
                         const char *const *option_texts, emm_manager **ret_manager);

    /*
     * Destroys the manager and returns all its memory, live or cached. The manager's events,
     * streams and pools go too. Shutdown and retire call destroy; process exit does not. The
     * context may have died already, and its handle and addresses may belong to another context by
     * now. So before you return anything to the driver, call cuCtxGetId. During destroy, the
     * cuCtxGetId of host->driver is safe for a dead context's handle; libcuda's own may crash.
     * Ignore driver errors that report a dead context. Open sections, registered streams and
     * running captures end with the manager; emm does not announce their end. Required. [exclusive]
     */
    emm_status (*destroy)(emm_manager *self);

    /* Prepares the manager for use. emm calls initialize before the first request, and possibly
     * many times later. Later calls must not disturb state. NULL: nothing to prepare. */
    emm_status (*initialize)(emm_manager *self);

    /*
     * Allocates `size` > 0 bytes of the device's own memory, aligned to at least 256 bytes, that
     * overlap no live memory. `stream` says which work may use the memory ("Streams" above). The
     * caller owns the memory until memfree. After a failed request the plugin holds no more of the
     * driver's memory than before, and no peak of get_stats has grown. In every allocating slot,
     * success with a null address counts as EMM_E_PLUGIN_FAILED. Required.
     *   EMM_E_OUT_OF_MEMORY        no memory left; emm then flushes its queue, trims, asks the
     *                              application to give back memory, and calls again
     *   EMM_E_INVALID_VALUE        the manager cannot meet this size in any state
     *   EMM_E_CAPTURING            the stream captures, and this plugin cannot serve a capture
     *   EMM_E_PAUSED               see pause
     *   EMM_E_DEVICE_LOST, EMM_E_DRIVER
     */
    emm_status (*memalloc)(emm_manager *self, size_t size, emm_stream stream,
                           emm_deviceptr *ret_ptr);

    /*
     * Takes back memory of memalloc. `size` is the size of the request, or 0 if the caller does not
     * know the size. `stream` says which work may still use the memory ("Streams" above). If the
     * driver answers CUDA_ERROR_DEINITIALIZED, the free succeeds. Required.
     *   EMM_E_NOT_OWNED            not a live allocation of this manager; nothing happened
     *   EMM_E_INVALID_VALUE        `size` differs from the request's (a plugin that records no
     *                              sizes need not check); or the stream belongs to another context;
     *                              nothing happened
     *   EMM_E_CAPTURING            the stream captures, and this plugin cannot keep the memory for
     *                              the graph; nothing happened
     */
    emm_status (*memfree)(emm_manager *self, emm_deviceptr ptr, size_t size, emm_stream stream);

    /*
     * Allocates pinned host memory, aligned to at least 256 bytes. `flags`: EMM_HOST_*. With
     * EMM_HOST_MAPPED, *ret_device is the memory's device address, else 0. The caller owns the
     * memory until memhostfree. If this slot and memhostfree are NULL, emm calls cuMemHostAlloc.
     *   EMM_E_OUT_OF_HOST_MEMORY, EMM_E_NOT_SUPPORTED, EMM_E_DRIVER
     */
    emm_status (*memhostalloc)(emm_manager *self, size_t size, uint32_t flags, void **ret_host,
                               emm_deviceptr *ret_device);

    /*
     * Takes back memory of memhostalloc. `size` and `flags` are those of the request; `size` is 0
     * if the caller does not know the size. When portable memory is freed with
     * EMM_STREAM_UNORDERED, work of any context may still use the memory, even of a context whose
     * manager was reset or destroyed.
     *   EMM_E_NOT_OWNED, EMM_E_INVALID_VALUE: as memfree
     */
    emm_status (*memhostfree)(emm_manager *self, void *host, size_t size, uint32_t flags,
                              emm_stream stream);

    /*
     * Pins a range that the caller owns and keeps owning. `flags`: EMM_HOST_PORTABLE, _MAPPED,
     * _READ_ONLY. *ret_device as in memhostalloc. If this slot and memunpin are NULL, emm calls
     * cuMemHostRegister.
     *   EMM_E_BUSY                 a part of the range is pinned already
     *   EMM_E_OUT_OF_HOST_MEMORY, EMM_E_NOT_SUPPORTED, EMM_E_DRIVER
     */
    emm_status (*mempin)(emm_manager *self, void *host, size_t size, uint32_t flags,
                         emm_deviceptr *ret_device);

    /*
     * Unpins at once: after the return the caller may free the range. `size` is the pinned size, or
     * 0 if the caller does not know the size.
     *   EMM_E_NOT_OWNED, EMM_E_INVALID_VALUE: as memfree
     */
    emm_status (*memunpin)(emm_manager *self, void *host, size_t size);

    /*
     * Allocates managed memory, aligned to at least 256 bytes and attached as `flags`
     * (EMM_ATTACH_*) says. If this slot and memfreemanaged are NULL, emm calls cuMemAllocManaged.
     *   EMM_E_OUT_OF_MEMORY, EMM_E_NOT_SUPPORTED, EMM_E_DRIVER
     */
    emm_status (*memallocmanaged)(emm_manager *self, size_t size, uint32_t flags,
                                  emm_deviceptr *ret_ptr);

    /*
     * Takes back memory of memallocmanaged; arguments as for memfree.
     *   EMM_E_NOT_OWNED, EMM_E_INVALID_VALUE: as memfree
     */
    emm_status (*memfreemanaged)(emm_manager *self, emm_deviceptr ptr, size_t size,
                                 emm_stream stream);

    /* Free and total memory as this manager sees them: *ret_free bytes could still be allocated,
     * and *ret_total is not smaller. NULL: cuMemGetInfo. */
    emm_status (*get_memory_info)(emm_manager *self, size_t *ret_free, size_t *ret_total);

    /*
     * Exports the live allocation that holds [ptr, ptr + size). The exported memory stays allocated
     * until the caller has freed the memory and emm has called release_ipc_handle. If this slot and
     * release_ipc_handle are NULL, emm exports the memory itself, if it came from cuMemAlloc. If
     * the plugin has `query`, emm calls `query` to find the live allocation.
     *   EMM_E_NOT_OWNED, EMM_E_NOT_SUPPORTED
     *   EMM_E_INVALID_VALUE        the allocation ends before ptr + size
     *   EMM_E_PAUSED               see pause
     */
    emm_status (*get_ipc_handle)(emm_manager *self, emm_deviceptr ptr, size_t size,
                                 emm_ipc_handle *ret_handle);

    /* Ends an export; called once for each get_ipc_handle. */
    emm_status (*release_ipc_handle)(emm_manager *self, const emm_ipc_handle *handle);

    /*
     * Drops every allocation of the manager: the program promises that no allocation is in use. emm
     * may call reset before initialize, repeatedly, and with no current context. Open sections
     * (defer_cleanup), peers' access, registered streams and announced captures outlast the reset.
     * NULL: emm calls destroy, create and initialize. Then emm tells the new manager of changed
     * options, sections, access, streams and captures, in this order. [exclusive]
     */
    emm_status (*reset)(emm_manager *self);

    /* `enter` 1 begins a section, 0 ends a section; sections nest. In a section the plugin returns
     * nothing to the driver. NULL: only the host's queue of pending deallocations waits for the
     * end. */
    emm_status (*defer_cleanup)(emm_manager *self, uint32_t enter);

    /* Returns cached memory to the driver, piece by piece, until at most `keep_bytes` are cached.
     * *ret_released: the bytes that went back, possibly 0. NULL: the plugin caches nothing. */
    emm_status (*trim)(emm_manager *self, size_t keep_bytes, size_t *ret_released);

    /*
     * Describes the live allocation that holds `ptr`. NULL: EMM_E_NOT_SUPPORTED.
     *   EMM_E_NOT_OWNED
     */
    emm_status (*query)(emm_manager *self, emm_deviceptr ptr, emm_block_info *ret_info);

    /*
     * Says that `stream` uses the live allocation at `ptr` too. After the free, reuse waits for all
     * work that `stream` held at the free. NULL: EMM_E_NOT_SUPPORTED.
     *   EMM_E_NOT_OWNED
     */
    emm_status (*record_use)(emm_manager *self, emm_deviceptr ptr, size_t size, emm_stream stream);

    /* Announces an event in a stream's life: EMM_STREAM_*. `stream` is never EMM_STREAM_UNORDERED.
     * NULL: emm announces nothing. */
    emm_status (*stream_notice)(emm_manager *self, emm_stream stream, uint32_t notice);

    /* Lets `peer_device` (an ordinal) use this manager's device memory, present and future.
     * `flags`: EMM_ACCESS_*. NULL: EMM_E_NOT_SUPPORTED. */
    emm_status (*set_access)(emm_manager *self, int32_t peer_device, uint32_t flags);

    /* Fills *ret_stats up to its struct_size, and leaves struct_size as it is; see emm_copy_sized.
     * NULL: zeros. */
    emm_status (*get_stats)(emm_manager *self, emm_stats *ret_stats);

    /* --- since 1.1 --- */

    /*
     * Gets the total that get_memory_info will report in a manager of `device` (an ordinal), before
     * such a manager exists. `device_bytes` is the device's total: answer this number, or less if
     * an option limits the memory. `option_texts`, `host`: as for create. The slot makes no
     * context, needs no context, and takes nothing from the driver. The slot may refuse any option
     * value that create would refuse. NULL: `device_bytes`.
     *   EMM_E_PLUGIN_SPEC          an option's value makes no sense; say which option
     */
    emm_status (*get_device_total)(const emm_host *host, int32_t device, size_t device_bytes,
                                   const char *const *option_texts, size_t *ret_total);

    /*
     * Refuses option values that create would refuse on every device, such as a limit below the
     * size of one allocation. So emm can refuse these values when the plugin is chosen, before
     * there is a context. `option_texts`, `host`: as for create. The slot makes no driver call, and
     * changes nothing. An older host does not call this slot, so create must refuse these values
     * too. NULL: only create refuses.
     *   EMM_E_PLUGIN_SPEC          an option's value makes no sense; say which option
     */
    emm_status (*check_options)(const emm_host *host, const char *const *option_texts);

    /* --- since 1.2 --- */

    /*
     * Waits for the context's work. Then returns the cached memory, and the memory behind all
     * allocations, to the driver. Addresses stay reserved. These stay in place: pinned and managed
     * memory, memory that is still exported, and memory that the driver refuses to take back.
     * *ret_released: the bytes that went back. Until resume the program does not let the device use
     * this memory. If the manager is already paused: EMM_S_IGNORED and 0 bytes.
     * While paused, memalloc and get_ipc_handle answer EMM_E_PAUSED or wait for resume. trim
     * releases nothing; the other slots work. reset ends the pause. A failure changes nothing. For
     * one manager, emm calls pause, resume, reset and destroy one at a time.
     *   EMM_E_OUT_OF_HOST_MEMORY   no host memory for the copy
     *   EMM_E_CAPTURING            a capture is announced
     *   EMM_E_BUSY                 a section is open (defer_cleanup); or an export has not ended
     *                              (see EMM_PAUSE_UNSHARED, EMM_PLUGIN_PAUSE_SHARES)
     *   EMM_E_NOT_SUPPORTED        this manager cannot pause, or cannot keep the content
     */
    emm_status (*pause)(emm_manager *self, uint32_t flags, size_t *ret_released);

    /*
     * Puts memory behind the same addresses, with the access of peers and, after EMM_PAUSE_KEEP,
     * the content of live allocations. The program may use the memory at once. If the manager is
     * not paused: EMM_S_IGNORED. A failure changes nothing, and emm may call resume again.
     *   EMM_E_OUT_OF_MEMORY        emm looks for memory as for memalloc, and calls again
     */
    emm_status (*resume)(emm_manager *self, uint32_t flags);

    /*
     * Changes an option that has EMM_OPTION_CHANGES. The new value holds for later requests, also
     * after a reset. `text`: as create gets it, but valid during the call alone. Live memory is not
     * touched. Refuse a value that create would refuse; a failure changes nothing. For one manager,
     * emm calls set_option one call at a time.
     *   EMM_E_PLUGIN_SPEC          the value makes no sense; say which option
     */
    emm_status (*set_option)(emm_manager *self, const char *key, const char *text);

    /*
     * Restarts the peaks in get_stats: from now on a peak is the highest value since this call. At
     * first peak_live_bytes equals live_bytes, and peak_reserved_bytes equals reserved_bytes plus
     * paused_bytes. No other figure changes, and the plugin serves as before. A failure changes
     * nothing. NULL: EMM_E_NOT_SUPPORTED.
     *   EMM_E_DRIVER
     */
    emm_status (*reset_peaks)(emm_manager *self);

    /*
     * Copies to `host` the `size` bytes, at least 1, that a pause with EMM_PAUSE_KEEP has kept for
     * the address `ptr`. Needs no current context. If the manager is not paused, or this memory
     * stayed in place: returns EMM_S_IGNORED, and copies nothing. During this call emm does not
     * call pause, resume, reset or destroy for this manager. NULL: EMM_E_NOT_SUPPORTED.
     *   EMM_E_NOT_OWNED            the pause has kept no content for some of these bytes
     */
    emm_status (*read_paused)(emm_manager *self, emm_deviceptr ptr, size_t size, void *host);
} emm_plugin;

/* The position of a slot among the table's functions. */
#define EMM_SLOT_INDEX(slot)                                                                       \
    ((offsetof(emm_plugin, slot) - offsetof(emm_plugin, create)) / sizeof(emm_function))

/* The entry point. emm calls it once in a process. Returns the table, or NULL after host->fail. */
typedef const emm_plugin *(*emm_plugin_entry)(const emm_host *host);

/* Defines a plugin's entry point; EMM_LAYER_ENTRY defines a layer's:
 *     EMM_PLUGIN_ENTRY(const emm_host *host) { ...; return &table; } */
#ifdef __cplusplus
#define EMM_PLUGIN_ENTRY extern "C" EMM_API const emm_plugin *emm_plugin_entry_v1
#define EMM_LAYER_ENTRY extern "C" EMM_API const emm_plugin *emm_layer_entry_v1
#else
EMM_API const emm_plugin *emm_plugin_entry_v1(const emm_host *host);
EMM_API const emm_plugin *emm_layer_entry_v1(const emm_host *host);
#define EMM_PLUGIN_ENTRY EMM_API const emm_plugin *emm_plugin_entry_v1
#define EMM_LAYER_ENTRY EMM_API const emm_plugin *emm_layer_entry_v1
#endif

/* --- memory for other processes -------------------------------------------------------------- */

/* emm_ipc_handle.kind */
#define EMM_IPC_LEGACY 1u          /* CUipcMemHandle */
#define EMM_IPC_FILE_DESCRIPTOR 2u /* memory of cuMemCreate, served over a socket */
#define EMM_IPC_FABRIC 3u          /* CUmemFabricHandle */
#define EMM_IPC_POOL 4u            /* CUmemPoolPtrExportData */

/*
 * The key to an allocation for another process, as plain bytes. A plugin fills kind, handle,
 * offset, size and exported_size; the host fills the rest.
 */
struct emm_ipc_handle {
    uint32_t magic;
    uint32_t version;
    uint32_t kind;  /* EMM_IPC_* */
    uint32_t flags; /* the exporter's network namespace; 0: unknown */
    uint8_t handle[64];
    uint64_t offset;        /* of the allocation in the exported memory */
    uint64_t size;          /* of the allocation */
    uint64_t exported_size; /* of the exported memory */
    uint64_t generation;    /* a random number, different for each export */
    uint8_t nonce[16]; /* 8 random bytes of the exporting process, as process ids collide across
                          containers; then the allocation's number in that process */
    uint8_t device_uuid[16];
    uint32_t pci_domain;
    uint32_t pci_bus;
    uint32_t pci_device;
    uint32_t checksum; /* of all members before it */
};

/* A piece of physical memory. The layout is fixed for this major version. */
struct emm_ipc_part {
    uint64_t handle; /* CUmemGenericAllocationHandle; for EMM_IPC_POOL, the CUmemoryPool */
    uint64_t size;   /* bytes, from the piece's beginning; for EMM_IPC_POOL, 0 */
};

/* The memory of an export, for serve_ipc. The plugin sets struct_size. The host copies the struct
 * and the arrays behind its pointers. */
struct emm_ipc_source {
    uint32_t struct_size;
    uint32_t kind;             /* EMM_IPC_FILE_DESCRIPTOR or EMM_IPC_POOL */
    const emm_ipc_part *parts; /* in the order of their addresses, without a gap */
    uint64_t part_count;       /* for EMM_IPC_POOL: 1 */
    uint64_t offset;           /* of the shared bytes: from the first part's beginning; for
                                  EMM_IPC_POOL, from the allocation's beginning */
    uint64_t size;             /* of the shared bytes */
    const void *pointer;       /* for EMM_IPC_POOL: the CUmemPoolPtrExportData; else NULL */
};

#ifdef __cplusplus
}
#endif

#endif

/* Until 2.0 this header also includes the helpers that it used to define; emm.h leaves them out. */
#ifndef EMM_WITHOUT_PLUGIN_HELPERS
#include <emm/plugin_helpers.h>
#if defined(__cpp_exceptions)
#include <emm/plugin.hpp>
#endif
#endif

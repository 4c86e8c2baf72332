/*
 * emm/plugin.h: the ABI between emm and a memory-manager plugin. C99 and C++11; compiles alone and
 * needs no cuda.h. This file is the whole contract. The slots' names are those of NBEP 7, "CUDA
 * External Memory Management Plugins", whose interface they extend.
 *
 * A plugin is a shared library that exports one C symbol,
 *
 *     const emm_plugin *emm_plugin_entry_v1(const emm_host *host);
 *
 * which returns a static, read-only table. The table, its texts and its options lie in the plugin's
 * own file, or in a library that it links: emm refuses pointers to anywhere else unread. (Those of
 * a plugin that is linked into the program may lie anywhere.) Texts are UTF-8, on one line, without
 * control characters, and of at most 4 KiB: what is not is shown so that it is.
 *
 * emm loads a plugin once in a process and never unloads it. For each CUDA context that asks for
 * memory emm calls `create` once; what that returns, the manager, serves this context alone until
 * `destroy`. A plugin of four functions (create, destroy, memalloc, memfree) is complete: emm fills
 * the other slots, working over the driver or refusing politely.
 *
 * Versions
 *   - EMM_PLUGIN_ABI_MAJOR is in the entry symbol's name, in emm_host and in emm_plugin. A
 * different major is refused, and the refusal names both numbers.
 *   - Within a major, structs only grow at the end. `struct_size` says how far a struct goes: a
 *     reader ignores what lies beyond what it knows and takes what is missing as zero, which for a
 *     slot means NULL. Plugin and host may each be the newer one.
 *   - A newer minor in a plugin is accepted: it tells that slots past the host's knowledge exist.
 *
 * Outputs come last, are written on success only, and are never NULL. Every function returns
 * EMM_OK, a positive notice or a negative error of emm/status.h; a plugin describes an error with
 * host->fail before it returns it. Size 0 and address 0 never reach a plugin, except that the size
 * of a free is 0 if the caller does not know it. Sizes are in bytes.
 *
 * Streams. An `emm_stream` is a CUstream. NULL (and CU_STREAM_LEGACY, 1) is the legacy default
 * stream, CU_STREAM_PER_THREAD (2) the calling thread's own; EMM_STREAM_UNORDERED is no stream:
 *   - memory allocated on stream S may be used by work put on S after the call;
 *   - memory freed on stream S may be given out again on S at once, because every use is ordered
 *     before what S gets next, and on other streams only after ordering is established;
 *   - memory allocated with EMM_STREAM_UNORDERED may be used on any stream of the context at once;
 *   - memory freed with EMM_STREAM_UNORDERED may still be in use anywhere in the context, and must
 *     not be given out before all work that the context held at that moment is done.
 * A stream is one of the manager's context. A plugin that keeps freed memory to give it out again
 * refuses memfree and memhostfree on a stream of another context, EMM_E_INVALID_VALUE with nothing
 * done, unless it makes reuse wait for that stream too; if it remembers registered streams, it
 * refuses to be told of one as well. The host refuses it in emm_record_use and emm_capture_begin.
 * A wait that fails, or a question to the driver that gets no answer, establishes no order.
 * Once all work that could use freed memory is done, and graphs that hold it are gone, it serves
 * other requests and trim gives it back, also if the stream that it was freed on has ended.
 *
 * A handle says nothing about whether its stream still exists, and the driver crashes on one that
 * does not: touch a stream in a call that carries it, or while it is registered (stream_notice),
 * and at no other time. Handles come back for new streams; cuStreamGetId tells them apart. Captures
 * of a registered stream are always announced.
 *
 * Tags on slots
 *   [thread-safe]      may be called by many threads at once, also for the same manager
 *   [context-current]  the manager's context is current on the calling thread. Without this tag any
 *                      context, or none, may be current, unless the plugin asks for more with
 *                      EMM_PLUGIN_NEEDS_CURRENT
 *   [init-only]        called once for a manager; nothing else is called for it at the same time
 *   [no-reentry]       must not call emm's application interface (emm/emm.h)
 * emm holds no lock while it calls a plugin. A call may wait for the device, but must keep no other
 * thread's call waiting with it: the device may be waiting for that thread, and it for memory. Only
 * a request that would else fail waits for what other threads' calls are giving back.
 * No C++ exception, longjmp or pthread_exit may leave a function. A thread that is cancelled
 * (pthread_cancel) may be unwound through memalloc, memfree, memhostalloc and memhostfree, which
 * must let that pass; in every other function emm has cancellation disabled.
 */
#ifndef EMM_PLUGIN_H
#define EMM_PLUGIN_H

#include <emm/status.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#ifdef __cplusplus
extern "C" {
#endif

#define EMM_PLUGIN_ABI_MAJOR 1u
#define EMM_PLUGIN_ABI_MINOR 0u
#define EMM_PLUGIN_ENTRY_SYMBOL "emm_plugin_entry_v1"

struct CUctx_st;
struct CUstream_st;

typedef unsigned long long emm_deviceptr; /* CUdeviceptr's own type */
typedef struct CUstream_st *emm_stream;   /* CUstream */
typedef struct emm_manager emm_manager;   /* the plugin's; opaque to emm */
typedef struct emm_context emm_context;   /* emm's; opaque to plugins */
typedef void (*emm_function)(void);       /* cast to the entry's own type before calling it */

#define EMM_STREAM_LEGACY ((emm_stream)0)
#define EMM_STREAM_PER_THREAD ((emm_stream)(uintptr_t)2)
#define EMM_STREAM_UNORDERED ((emm_stream) ~(uintptr_t)0)

/* emm_plugin.capabilities: what is real about this plugin. Unknown bits are ignored.
 *   NEEDS_CURRENT   make the manager's context current around each call that has a manager; 34 ns
 *   STREAM_ORDERED  memfree on a stream does not wait for it
 *   CACHES          keeps freed memory for later requests
 *   CAPTURE         memalloc and memfree work on a capturing stream; without it they may answer
 *                   EMM_E_CAPTURING there */
#define EMM_PLUGIN_NEEDS_CURRENT (UINT64_C(1) << 0)
#define EMM_PLUGIN_STREAM_ORDERED (UINT64_C(1) << 1)
#define EMM_PLUGIN_CACHES (UINT64_C(1) << 2)
#define EMM_PLUGIN_CAPTURE (UINT64_C(1) << 3)

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
 * refuses others, and those that a slot does not take, before it calls a plugin. */
#define EMM_HOST_PORTABLE 1u       /* pinned for all contexts, and possibly in use by all */
#define EMM_HOST_MAPPED 2u         /* give it a device address */
#define EMM_HOST_WRITE_COMBINED 4u /* memhostalloc only */
#define EMM_HOST_READ_ONLY 8u      /* mempin only: the device will not write to it */

/* Flags of memallocmanaged, one of them: CU_MEM_ATTACH_*. */
#define EMM_ATTACH_GLOBAL 1u
#define EMM_ATTACH_HOST 2u

/* stream_notice */
#define EMM_STREAM_REGISTERED 1u     /* the stream will live until it is announced as retiring */
#define EMM_STREAM_RETIRING 2u       /* about to be destroyed; it can still be used in this call */
#define EMM_STREAM_CAPTURE_BEGINS 3u /* about to begin a capture, or to join one */
#define EMM_STREAM_CAPTURE_ENDS 4u   /* over, or failed to begin: one for each accepted BEGINS */

/* set_access: CU_MEM_ACCESS_FLAGS_PROT_*. */
#define EMM_ACCESS_NONE 0u
#define EMM_ACCESS_READ 1u
#define EMM_ACCESS_READ_WRITE 3u

/* --- what emm offers to plugins -------------------------------------------------------------- */

/* emm_ipc_handle.kind */
#define EMM_IPC_LEGACY 1u          /* CUipcMemHandle */
#define EMM_IPC_FILE_DESCRIPTOR 2u /* memory of cuMemCreate, served over a socket */
#define EMM_IPC_FABRIC 3u          /* CUmemFabricHandle */
#define EMM_IPC_POOL 4u            /* CUmemPoolPtrExportData */

/*
 * What another process needs to open an allocation: plain bytes. A plugin fills kind, handle,
 * offset, size and exported_size; the host fills the rest.
 */
typedef struct emm_ipc_handle {
    uint32_t magic;
    uint32_t version;
    uint32_t kind;  /* EMM_IPC_* */
    uint32_t flags; /* the exporter's network namespace; 0: not known */
    uint8_t handle[64];
    uint64_t offset;        /* of the allocation in what was exported */
    uint64_t size;          /* of the allocation */
    uint64_t exported_size; /* of what was exported */
    uint64_t generation;    /* a random number of the export's own */
    uint8_t nonce[16]; /* of the exporting process, since process ids collide across containers:
                          8 random bytes; and which of its allocations it is */
    uint8_t device_uuid[16];
    uint32_t pci_domain;
    uint32_t pci_bus;
    uint32_t pci_device;
    uint32_t checksum; /* of everything before it */
} emm_ipc_handle;

/* A piece of physical memory. The layout is fixed for this major version. */
typedef struct emm_ipc_part {
    uint64_t handle; /* CUmemGenericAllocationHandle; of EMM_IPC_POOL, the CUmemoryPool */
    uint64_t size;   /* bytes, from the piece's beginning; of EMM_IPC_POOL, 0 */
} emm_ipc_part;

/* What an export is made of, for serve_ipc. The plugin sets struct_size; all of it is copied. */
typedef struct emm_ipc_source {
    uint32_t struct_size;
    uint32_t kind;             /* EMM_IPC_FILE_DESCRIPTOR or EMM_IPC_POOL */
    const emm_ipc_part *parts; /* in the order of their addresses, without a gap */
    uint64_t part_count;       /* of EMM_IPC_POOL: 1 */
    uint64_t offset;           /* of what is shared, from the first part's beginning or, of
                                  EMM_IPC_POOL, from where the allocation begins */
    uint64_t size;             /* of what is shared */
    const void *pointer;       /* of EMM_IPC_POOL: the CUmemPoolPtrExportData; else NULL */
} emm_ipc_source;

/*
 * What a pending free is asked to do: free it, or, when its context has died and its addresses may
 * be somebody else's by now, release what `argument` itself holds and leave the driver alone.
 */
#define EMM_DEFERRED_DROP 0u
#define EMM_DEFERRED_RUN 1u

/* A pending free. It is called once, on any thread, with any or no current context. */
typedef emm_status (*emm_deferred)(void *argument, uint32_t what);

/*
 * The host's services. The struct lives as long as the process. All of them are [thread-safe] and
 * need no current context.
 */
typedef struct emm_host {
    uint32_t struct_size; /* bytes of this struct that the host fills */
    uint32_t abi_major;   /* EMM_PLUGIN_ABI_MAJOR of the host */
    uint32_t abi_minor;
    uint32_t reserved;   /* 0 */
    const char *version; /* the host's own version, for people */

    /* Writes one line to emm's log (EMM_LOG). `level`: EMM_LOG_*; `text`: UTF-8, no newline. */
    void (*log)(int32_t level, const char *text);

    /*
     * Describes the error that the plugin is about to return: `driver_result` is the CUresult
     * behind it, or 0; `text` is one UTF-8 sentence, copied. Returns `code`, so that a plugin can
     * write `return host->fail(...)`. The description belongs to the calling thread.
     */
    emm_status (*fail)(emm_status code, int32_t driver_result, const char *text);

    /*
     * The driver's entry point `name` (unversioned: "cuMemAlloc") with the signature that it has in
     * CUDA `cuda_version` (12000 is 12.0), as cuGetProcAddress gives it; NULL if the driver in use
     * has none. A plugin that asks here links no CUDA library and runs on a simulated driver too.
     */
    emm_function (*driver)(const char *name, int32_t cuda_version);

    /*
     * Puts a free on the context's queue of pending deallocations. It runs when the queue passes
     * its limits (possibly before this returns), on out of memory, on reset and on retire; never
     * inside a deferred section. `bytes` counts towards the limits. On an error the free was not
     * queued and is still the caller's.
     *   EMM_E_OUT_OF_HOST_MEMORY   no memory for the entry
     */
    emm_status (*defer)(emm_context *context, emm_deferred function, void *argument, size_t bytes);

    /*
     * Asks the application, if it has set a pressure callback, to give back at least `bytes` of
     * this context's memory; returns what it says that it gave back, 0 without a callback. The
     * application frees from inside, so call this with no lock held. Returns 0 when called from
     * within a pressure callback.
     */
    size_t (*pressure)(emm_context *context, size_t bytes);

    /*
     * For get_ipc_handle of memory that goes to other processes by file descriptor. The host serves
     * it from a thread of its own, to processes of this user that have the handle: it exports each
     * part (cuMemExportToShareableHandle; so the parts were made with
     * CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR) when somebody opens the handle, and keeps no
     * descriptor. Fills all of *ret_handle that a plugin fills. The parts stay the plugin's, which
     * keeps them as they are until withdraw_ipc has returned, or reset or destroy is called for
     * the context's manager: the host withdraws by itself before those.
     *   EMM_E_INVALID_VALUE        no such kind, or the allocation does not lie in the parts
     *   EMM_E_OUT_OF_HOST_MEMORY   no memory, socket or thread to serve it with
     */
    emm_status (*serve_ipc)(emm_context *context, const emm_ipc_source *source,
                            emm_ipc_handle *ret_handle);

    /*
     * For release_ipc_handle: ends what serve_ipc began. When it returns, the host touches the
     * parts no more. It may wait for a few driver calls, so call it with no lock held. Processes
     * that have the memory open keep it: the driver frees a part when nobody has it.
     *   EMM_E_NOT_OWNED            not served, or not any more
     */
    emm_status (*withdraw_ipc)(emm_context *context, const emm_ipc_handle *handle);
} emm_host;

/* What a manager is made for. Valid during `create` only; copy what is needed. */
typedef struct emm_context_info {
    uint32_t struct_size;
    int32_t device;                /* the device's ordinal in this process */
    struct CUctx_st *cuda_context; /* the CUcontext */
    uint64_t context_id;           /* cuCtxGetId: never reused, unlike the handle */
    emm_context *context;          /* for host->defer and host->pressure */
    uint32_t primary;              /* 1: the device's primary context */
    uint32_t reserved;             /* 0 */
    uint8_t device_uuid[16];
} emm_context_info;

/*
 * emm_option.kind: what the host checks about a value before `create`. A choice is one of the words
 * that default_value lists, "a|b|c"; the first one is the default.
 */
#define EMM_OPTION_TEXT 1u   /* anything */
#define EMM_OPTION_SIZE 2u   /* bytes: 4096, 64KiB, 8MiB, 1.5GiB */
#define EMM_OPTION_COUNT 3u  /* a whole number, 0 or more */
#define EMM_OPTION_NUMBER 4u /* a decimal number, 0 or more: 0.5 */
#define EMM_OPTION_FLAG 5u   /* 0 or 1 */
#define EMM_OPTION_CHOICE 6u

/* One option of a plugin. The layout is fixed for this major version. */
typedef struct emm_option {
    const char *name;          /* lower case, digits and '_'; NULL ends the array */
    const char *default_value; /* NULL: no value unless one is given */
    const char *help;          /* one sentence */
    uint32_t kind;
    uint32_t reserved; /* 0 */
} emm_option;

/*
 * What get_stats fills, up to the struct_size that the caller has set. live_bytes, cached_bytes and
 * pending_bytes are parts of reserved_bytes, and no memory counts in two of them; what the rounding
 * of live allocations costs may be in none.
 */
typedef struct emm_stats {
    uint32_t struct_size; /* in: sizeof(emm_stats) of the caller */
    uint32_t reserved;
    uint64_t live_bytes;          /* device memory handed out, as asked for */
    uint64_t live_count;          /* allocations behind live_bytes */
    uint64_t cached_bytes;        /* device memory held for later requests */
    uint64_t reserved_bytes;      /* device memory taken from the driver */
    uint64_t peak_live_bytes;     /* the highest live_bytes that was observed */
    uint64_t peak_reserved_bytes; /* the highest reserved_bytes */
    uint64_t allocations;         /* successful memalloc calls so far */
    uint64_t frees;               /* successful memfree calls so far */
    uint64_t failures;            /* memalloc calls that failed */
    uint64_t pending_bytes;       /* freed, and waiting for the device or a deferred section */
    uint64_t host_live_bytes;     /* pinned host memory handed out */
    uint64_t host_reserved_bytes; /* pinned host memory taken from the driver */
} emm_stats;

/* What query fills, up to the struct_size that the caller has set. */
typedef struct emm_block_info {
    uint32_t struct_size; /* in: sizeof(emm_block_info) of the caller */
    uint32_t kind;        /* EMM_KIND_* */
    emm_deviceptr base;   /* where the allocation begins */
    uint64_t size;        /* bytes that belong to it */
    int32_t device;       /* ordinal */
    uint32_t reserved;
} emm_block_info;

/* --- what a plugin offers to emm ------------------------------------------------------------- */

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
     * given in the spec, else its default, else NULL; keys and values have been checked against
     * `options`, and the texts live as long as the process. On success the host owns *ret_manager
     * until `destroy`. After a failure it will be asked again the next time.
     * Required. [context-current] [init-only] [no-reentry]
     *   EMM_E_PLUGIN_SPEC          an option's value makes no sense; say which
     *   EMM_E_OUT_OF_MEMORY, EMM_E_OUT_OF_HOST_MEMORY, EMM_E_DRIVER, EMM_E_NOT_SUPPORTED
     */
    emm_status (*create)(const emm_host *host, const emm_context_info *info,
                         const char *const *option_texts, emm_manager **ret_manager);

    /*
     * Gives up the manager and all memory behind it, handed out or not, and the events, streams and
     * pools that it has made. Called by shutdown and retire, never at process exit. The context may
     * have died already, and its handle and addresses may be another context's by now: ask for its
     * id before anything is returned to the driver. A driver call that says that it died is no
     * error. Sections, registered streams and captures that go on end with it, unannounced.
     * Required. [init-only] [no-reentry]
     */
    emm_status (*destroy)(emm_manager *self);

    /*
     * Prepares for use. Called before the first request, and possibly many times after: later
     * calls must not disturb state. NULL: nothing to prepare. [thread-safe] [no-reentry]
     */
    emm_status (*initialize)(emm_manager *self);

    /*
     * Allocates `size` > 0 bytes of device memory, aligned to at least 256 bytes, for use as
     * `stream` promises. The caller owns it until memfree. A request that fails takes nothing from
     * the driver and moves no peak. A success without an address is taken for EMM_E_PLUGIN_FAILED,
     * here and below. Required. [thread-safe] [no-reentry]
     *   EMM_E_OUT_OF_MEMORY        nothing left; emm then drains, trims, asks the application to
     *                              give back, drains and trims what that gave, and asks once more
     *   EMM_E_INVALID_VALUE        the size cannot be met in any state of the manager
     *   EMM_E_CAPTURING            the stream captures and this plugin cannot serve that
     *   EMM_E_DEVICE_LOST, EMM_E_DRIVER
     */
    emm_status (*memalloc)(emm_manager *self, size_t size, emm_stream stream,
                           emm_deviceptr *ret_ptr);

    /*
     * Takes back what memalloc gave. `size` is what was asked for, or 0 if the caller does not
     * know; `stream` says how remaining uses are ordered. A free that the driver answers with
     * CUDA_ERROR_DEINITIALIZED is a success. Required. [thread-safe] [no-reentry]
     *   EMM_E_NOT_OWNED            not a live allocation of this manager; nothing happened
     *   EMM_E_INVALID_VALUE        `size` is not what was asked for, as far as the plugin knows
     *                              sizes; or the stream belongs to another context; nothing
     *                              happened
     *   EMM_E_CAPTURING            the stream captures and this plugin cannot serve that: a graph
     *                              uses the memory whenever it is launched; nothing happened
     */
    emm_status (*memfree)(emm_manager *self, emm_deviceptr ptr, size_t size, emm_stream stream);

    /*
     * Allocates pinned host memory, aligned to at least 256 bytes. `flags`: EMM_HOST_*. *ret_device
     * is its device address if EMM_HOST_MAPPED was given, else 0. The caller owns it until
     * memhostfree. NULL, with memhostfree: cuMemHostAlloc. [thread-safe] [no-reentry]
     *   EMM_E_OUT_OF_HOST_MEMORY, EMM_E_NOT_SUPPORTED, EMM_E_DRIVER
     */
    emm_status (*memhostalloc)(emm_manager *self, size_t size, uint32_t flags, void **ret_host,
                               emm_deviceptr *ret_device);

    /*
     * Takes back what memhostalloc gave. `size` and `flags` are what was asked for, or size 0 if
     * the caller does not know. Portable memory freed with EMM_STREAM_UNORDERED may still be in use
     * by every context, also by one whose manager was reset or destroyed. [thread-safe]
     * [no-reentry]
     *   EMM_E_NOT_OWNED, EMM_E_INVALID_VALUE: as memfree
     */
    emm_status (*memhostfree)(emm_manager *self, void *host, size_t size, uint32_t flags,
                              emm_stream stream);

    /*
     * Pins a range that the caller owns and keeps owning. `flags`: EMM_HOST_PORTABLE, _MAPPED,
     * _READ_ONLY. *ret_device as above. NULL, with memunpin: cuMemHostRegister. [thread-safe]
     * [no-reentry]
     *   EMM_E_BUSY                 a part of the range is pinned already
     *   EMM_E_OUT_OF_HOST_MEMORY, EMM_E_NOT_SUPPORTED, EMM_E_DRIVER
     */
    emm_status (*mempin)(emm_manager *self, void *host, size_t size, uint32_t flags,
                         emm_deviceptr *ret_device);

    /*
     * Unpins at once: when it returns, the caller may free the range. `size` is what was pinned, or
     * 0 if the caller does not know. [thread-safe] [no-reentry]
     *   EMM_E_NOT_OWNED, EMM_E_INVALID_VALUE: as memfree
     */
    emm_status (*memunpin)(emm_manager *self, void *host, size_t size);

    /*
     * Allocates managed memory, attached as `flags` (EMM_ATTACH_*) says, aligned to at least 256
     * bytes. NULL, with memfreemanaged: cuMemAllocManaged. [thread-safe] [no-reentry]
     *   EMM_E_OUT_OF_MEMORY, EMM_E_NOT_SUPPORTED, EMM_E_DRIVER
     */
    emm_status (*memallocmanaged)(emm_manager *self, size_t size, uint32_t flags,
                                  emm_deviceptr *ret_ptr);

    /*
     * Takes back what memallocmanaged gave; arguments as for memfree. [thread-safe] [no-reentry]
     *   EMM_E_NOT_OWNED, EMM_E_INVALID_VALUE: as memfree
     */
    emm_status (*memfreemanaged)(emm_manager *self, emm_deviceptr ptr, size_t size,
                                 emm_stream stream);

    /*
     * Bytes that could still be allocated, and bytes in all, as this manager sees them. NULL:
     * cuMemGetInfo. [thread-safe] [no-reentry]
     */
    emm_status (*get_memory_info)(emm_manager *self, size_t *ret_free, size_t *ret_total);

    /*
     * Exports the live allocation that holds [ptr, ptr + size). What is exported stays allocated
     * until it is freed and release_ipc_handle is called. NULL, with release_ipc_handle: the host's
     * default for memory that came from cuMemAlloc; `query`, if there is one, tells it what is
     * live. [thread-safe] [no-reentry]
     *   EMM_E_NOT_OWNED, EMM_E_NOT_SUPPORTED
     *   EMM_E_INVALID_VALUE        the allocation ends before
     */
    emm_status (*get_ipc_handle)(emm_manager *self, emm_deviceptr ptr, size_t size,
                                 emm_ipc_handle *ret_handle);

    /* Ends an export; once for each get_ipc_handle. [thread-safe] [no-reentry] */
    emm_status (*release_ipc_handle)(emm_manager *self, const emm_ipc_handle *handle);

    /*
     * Drops every allocation of the context: the program promises that none is in use. Legal before
     * initialize, repeatedly, and with no current context. Open sections (defer_cleanup), peers'
     * access, registered streams and announced captures go on over it. NULL: destroy, create and
     * initialize; then emm tells the new manager of them, in this order. [no-reentry]
     */
    emm_status (*reset)(emm_manager *self);

    /*
     * `enter` 1 begins and 0 ends a section in which nothing is returned to the driver; sections
     * nest. NULL: only the host's queue of pending deallocations is held back. [thread-safe]
     * [no-reentry]
     */
    emm_status (*defer_cleanup)(emm_manager *self, uint32_t enter);

    /*
     * Returns cached memory to the driver, piece by piece, until at most `keep_bytes` are cached:
     * none if that is so already. *ret_released is how much it was. NULL: nothing is cached.
     * [thread-safe] [no-reentry]
     */
    emm_status (*trim)(emm_manager *self, size_t keep_bytes, size_t *ret_released);

    /*
     * Describes the live allocation that holds `ptr`. NULL: EMM_E_NOT_SUPPORTED. [thread-safe]
     * [no-reentry]
     *   EMM_E_NOT_OWNED
     */
    emm_status (*query)(emm_manager *self, emm_deviceptr ptr, emm_block_info *ret_info);

    /*
     * The live allocation at `ptr` is used on `stream` too: after its memfree, reuse must wait for
     * what `stream` held by then. NULL: EMM_E_NOT_SUPPORTED. [thread-safe] [no-reentry]
     *   EMM_E_NOT_OWNED
     */
    emm_status (*record_use)(emm_manager *self, emm_deviceptr ptr, size_t size, emm_stream stream);

    /* Something happens to a stream: EMM_STREAM_*. `stream` is never EMM_STREAM_UNORDERED. NULL:
     * ignored. [thread-safe] [no-reentry] */
    emm_status (*stream_notice)(emm_manager *self, emm_stream stream, uint32_t notice);

    /*
     * Lets `peer_device` (an ordinal) use this manager's device memory, present and future.
     * `flags`: EMM_ACCESS_*. NULL: EMM_E_NOT_SUPPORTED. [thread-safe] [no-reentry]
     */
    emm_status (*set_access)(emm_manager *self, int32_t peer_device, uint32_t flags);

    /*
     * Fills *ret_stats up to its struct_size, which it leaves alone; see emm_copy_sized. NULL:
     * zeros. [thread-safe] [no-reentry]
     */
    emm_status (*get_stats)(emm_manager *self, emm_stats *ret_stats);
} emm_plugin;

/*
 * The entry point: returns a table that lives as long as the process, or NULL after host->fail.
 * Called once in a process. [no-reentry]
 */
typedef const emm_plugin *(*emm_plugin_entry)(const emm_host *host);

/* How a plugin defines it: EMM_PLUGIN_ENTRY(const emm_host *host) { ...; return &table; } */
#ifdef __cplusplus
#define EMM_PLUGIN_ENTRY extern "C" EMM_API const emm_plugin *emm_plugin_entry_v1
#else
EMM_API const emm_plugin *emm_plugin_entry_v1(const emm_host *host);
#define EMM_PLUGIN_ENTRY EMM_API const emm_plugin *emm_plugin_entry_v1
#endif

/* --- helpers for authors: inline, nothing to link -------------------------------------------- */

/* The text of option `name` among create's option_texts, or NULL. */
static inline const char *emm_option_text(const emm_option *options,
                                          const char *const *option_texts, const char *name) {
    size_t i;
    for (i = 0; options && options[i].name; i++) {
        if (strcmp(options[i].name, name) == 0) {
            return option_texts[i];
        }
    }
    return NULL;
}

/*
 * Reads a size as the host accepts it for EMM_OPTION_SIZE: decimal digits, then perhaps KiB, MiB,
 * GiB or TiB, and before such a unit perhaps a fraction of up to six digits (1.5GiB). Returns 1 and
 * sets *ret_bytes, or returns 0 if the text is no size or the size is 2^63 or more.
 */
static inline int emm_parse_size(const char *text, uint64_t *ret_bytes) {
    static const char units[] = "KMGT";
    const uint64_t limit = UINT64_C(1) << 63;
    uint64_t whole = 0, unit = 1, numerator = 0, denominator = 1;
    const char *p = text;
    if (!p || *p < '0' || *p > '9') {
        return 0;
    }
    for (; *p >= '0' && *p <= '9'; p++) {
        if (whole >= limit / 10) {
            return 0;
        }
        whole = whole * 10 + (uint64_t)(*p - '0');
    }
    if (*p == '.') {
        for (p++; *p >= '0' && *p <= '9' && denominator < 1000000; p++) {
            numerator = numerator * 10 + (uint64_t)(*p - '0');
            denominator *= 10;
        }
        if (denominator == 1 || *p == '\0') {
            return 0;
        }
    }
    if (*p != '\0') {
        const char *found = strchr(units, *p);
        if (!found || strcmp(p + 1, "iB") != 0) {
            return 0;
        }
        unit = UINT64_C(1) << (10 * (found - units + 1));
    }
    if (whole >= limit / unit) {
        return 0;
    }
    *ret_bytes = whole * unit + unit * numerator / denominator;
    return 1;
}

/* host->fail with a printf format; the text is cut at 1,023 bytes. */
#if defined(__GNUC__)
__attribute__((format(printf, 4, 5)))
#endif
static inline emm_status
emm_failf(const emm_host *host, emm_status code, int32_t driver_result, const char *format, ...) {
    char text[1024];
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(text, sizeof text, format, arguments);
    va_end(arguments);
    return host->fail(code, driver_result, text);
}

/*
 * Copies `from`, whose first member is its own struct_size, into a caller's struct of the same type
 * and perhaps another version, as far as the caller's struct_size goes; that one stays as it is.
 * emm lets no struct of an application through whose struct_size is 0.
 */
static inline void emm_copy_sized(void *ret, const void *from) {
    uint32_t wanted, known;
    memcpy(&wanted, ret, sizeof wanted);
    memcpy(&known, from, sizeof known);
    if (wanted > known) {
        wanted = known;
    }
    if (wanted > sizeof wanted) {
        memcpy((char *)ret + sizeof wanted, (const char *)from + sizeof wanted,
               wanted - sizeof wanted);
    }
}

#ifdef __cplusplus
}
#endif

/* --- an adaptor for authors in C++ ----------------------------------------------------------- */

#ifdef __cplusplus
#include <exception>
#include <new>
#if defined(__GLIBCXX__)
#include <cxxabi.h>
#endif

/*
 * emm::make_plugin<Manager>(...) makes a table from a class. Its constructor takes what `create`
 * takes: (const emm_host &, const emm_context_info &, const char *const *option_texts). A public
 * member function named after a slot, with the slot's arguments less `self`, fills that slot, also
 * if it is inherited; the others stay NULL. An exception that leaves a constructor or member
 * becomes a status: emm::PluginError its own, std::bad_alloc EMM_E_OUT_OF_HOST_MEMORY, anything
 * else EMM_E_PLUGIN_EXCEPTION, with what() as the description.
 */
namespace emm {

class PluginError : public std::exception {
public:
    PluginError(emm_status status, int32_t driver_result, const char *text) noexcept
        : status_(status), driver_result_(driver_result) {
        snprintf(text_, sizeof text_, "%s", text);
    }
    emm_status status() const noexcept { return status_; }
    int32_t driver_result() const noexcept { return driver_result_; }
    const char *what() const noexcept override { return text_; }

private:
    emm_status status_;
    int32_t driver_result_;
    char text_[504];
};

namespace adaptor {

template <class Manager> struct Held {
    const emm_host *host;
    Manager manager;
    Held(const emm_host &h, const emm_context_info &info, const char *const *option_texts)
        : host(&h), manager(h, info, option_texts) {}
};

template <class Function> emm_status guard(const emm_host *host, Function function) {
    try {
        return function();
#if defined(__GLIBCXX__)
    } catch (const abi::__forced_unwind &) { /* the thread is cancelled */
        throw;
#endif
    } catch (const PluginError &error) {
        return host->fail(error.status(), error.driver_result(), error.what());
    } catch (const std::bad_alloc &) {
        return host->fail(EMM_E_OUT_OF_HOST_MEMORY, 0, "the plugin ran out of host memory");
    } catch (const std::exception &error) {
        const char *text = error.what();
        return host->fail(EMM_E_PLUGIN_EXCEPTION, 0, text ? text : "an exception without a text");
    } catch (...) {
        return host->fail(EMM_E_PLUGIN_EXCEPTION, 0, "an exception that is no std::exception");
    }
}

template <class Manager>
emm_status create(const emm_host *host, const emm_context_info *info,
                  const char *const *option_texts, emm_manager **ret_manager) {
    return guard(host, [&]() -> emm_status {
        *ret_manager =
            reinterpret_cast<emm_manager *>(new Held<Manager>(*host, *info, option_texts));
        return EMM_OK;
    });
}

template <class Manager> emm_status destroy(emm_manager *self) noexcept {
    delete reinterpret_cast<Held<Manager> *>(self);
    return EMM_OK;
}

template <class Manager, class Slot> struct Thunk;
template <class Manager, class... Arguments>
struct Thunk<Manager, emm_status (*)(emm_manager *, Arguments...)> {
    template <class Member, Member member>
    static emm_status call(emm_manager *self, Arguments... arguments) {
        Held<Manager> *held = reinterpret_cast<Held<Manager> *>(self);
        return guard(held->host, [&]() { return (held->manager.*member)(arguments...); });
    }
};

/* Without the Manager a final class is not looked into: nothing can be derived from it. */
template <class Manager, class Name, bool is_final = __is_final(Manager)>
struct Both : Manager, Name {};
template <class Manager, class Name> struct Both<Manager, Name, true> : Name {};

/* slot_NAME<Manager>(0) is the thunk if Manager has a member of that name, else NULL. A name that
 * both bases of Both have is ambiguous: that shows a member which no pointer could be taken of. */
#define EMM_ADAPT_(slot)                                                                           \
    struct Name_##slot {                                                                           \
        int slot;                                                                                  \
    };                                                                                             \
    template <class Class> auto lacks_##slot(int)->decltype((void)&Class::slot, char());           \
    template <class Class> long lacks_##slot(long);                                                \
    template <class Manager>                                                                       \
    auto slot_##slot(int)->decltype((void)&Manager::slot, decltype(emm_plugin::slot)()) {          \
        return &Thunk<Manager, decltype(emm_plugin::slot)>::template call<                         \
            decltype(&Manager::slot), &Manager::slot>;                                             \
    }                                                                                              \
    template <class Manager> decltype(emm_plugin::slot) slot_##slot(long) {                        \
        static_assert(sizeof(lacks_##slot<Both<Manager, Name_##slot>>(0)) == sizeof(char),         \
                      "the member `" #slot "` cannot serve as the slot of that name: it must be "  \
                      "public and not overloaded");                                                \
        return nullptr;                                                                            \
    }

#define EMM_EACH_ADAPTED_SLOT_(apply)                                                              \
    apply(initialize) apply(memalloc) apply(memfree) apply(memhostalloc) apply(memhostfree)        \
        apply(mempin) apply(memunpin) apply(memallocmanaged) apply(memfreemanaged)                 \
            apply(get_memory_info) apply(get_ipc_handle) apply(release_ipc_handle) apply(reset)    \
                apply(defer_cleanup) apply(trim) apply(query) apply(record_use)                    \
                    apply(stream_notice) apply(set_access) apply(get_stats)

EMM_EACH_ADAPTED_SLOT_(EMM_ADAPT_)

} // namespace adaptor

/* The texts and `options` must be static: string literals, and an array at namespace scope. */
template <class Manager>
emm_plugin make_plugin(const char *name, const char *version, const char *description,
                       uint64_t capabilities = 0, const emm_option *options = nullptr) {
    emm_plugin plugin = emm_plugin();
    plugin.struct_size = sizeof plugin;
    plugin.interface_version = EMM_PLUGIN_ABI_MAJOR;
    plugin.interface_minor = EMM_PLUGIN_ABI_MINOR;
    plugin.name = name;
    plugin.version = version;
    plugin.description = description;
    plugin.capabilities = capabilities;
    plugin.options = options;
    plugin.create = &adaptor::create<Manager>;
    plugin.destroy = &adaptor::destroy<Manager>;
#define EMM_ASSIGN_(slot) plugin.slot = adaptor::slot_##slot<Manager>(0);
    EMM_EACH_ADAPTED_SLOT_(EMM_ASSIGN_)
#undef EMM_ASSIGN_
    return plugin;
}

} // namespace emm

#undef EMM_ADAPT_
#undef EMM_EACH_ADAPTED_SLOT_
#endif

/* --- the layout, pinned: one line a slot ----------------------------------------------------- */

#if defined(__cplusplus)
#define EMM_PIN_(what, text) static_assert(what, text)
#elif defined(__STDC_VERSION__) && __STDC_VERSION__ >= 201112L
#define EMM_PIN_(what, text) _Static_assert(what, text)
#else
#define EMM_PIN_PASTE_(a, b) a##b
#define EMM_PIN_NAME_(line) EMM_PIN_PASTE_(emm_pinned_, line)
#define EMM_PIN_(what, text) extern char EMM_PIN_NAME_(__LINE__)[(what) ? 1 : -1]
#endif
#define EMM_AT_(type, member, offset)                                                              \
    EMM_PIN_(offsetof(type, member) == (offset), #type "." #member " has moved")
#define EMM_SIZE_(type, size) EMM_PIN_(sizeof(type) == (size), #type " has changed size")

EMM_SIZE_(void *, 8);
EMM_SIZE_(emm_status, 4);
EMM_SIZE_(emm_deviceptr, 8);

EMM_AT_(emm_host, struct_size, 0);
EMM_AT_(emm_host, abi_major, 4);
EMM_AT_(emm_host, abi_minor, 8);
EMM_AT_(emm_host, reserved, 12);
EMM_AT_(emm_host, version, 16);
EMM_AT_(emm_host, log, 24);
EMM_AT_(emm_host, fail, 32);
EMM_AT_(emm_host, driver, 40);
EMM_AT_(emm_host, defer, 48);
EMM_AT_(emm_host, pressure, 56);
EMM_AT_(emm_host, serve_ipc, 64);
EMM_AT_(emm_host, withdraw_ipc, 72);
EMM_SIZE_(emm_host, 80);

EMM_AT_(emm_context_info, struct_size, 0);
EMM_AT_(emm_context_info, device, 4);
EMM_AT_(emm_context_info, cuda_context, 8);
EMM_AT_(emm_context_info, context_id, 16);
EMM_AT_(emm_context_info, context, 24);
EMM_AT_(emm_context_info, primary, 32);
EMM_AT_(emm_context_info, reserved, 36);
EMM_AT_(emm_context_info, device_uuid, 40);
EMM_SIZE_(emm_context_info, 56);

EMM_AT_(emm_option, name, 0);
EMM_AT_(emm_option, default_value, 8);
EMM_AT_(emm_option, help, 16);
EMM_AT_(emm_option, kind, 24);
EMM_AT_(emm_option, reserved, 28);
EMM_SIZE_(emm_option, 32);

EMM_AT_(emm_stats, struct_size, 0);
EMM_AT_(emm_stats, reserved, 4);
EMM_AT_(emm_stats, live_bytes, 8);
EMM_AT_(emm_stats, live_count, 16);
EMM_AT_(emm_stats, cached_bytes, 24);
EMM_AT_(emm_stats, reserved_bytes, 32);
EMM_AT_(emm_stats, peak_live_bytes, 40);
EMM_AT_(emm_stats, peak_reserved_bytes, 48);
EMM_AT_(emm_stats, allocations, 56);
EMM_AT_(emm_stats, frees, 64);
EMM_AT_(emm_stats, failures, 72);
EMM_AT_(emm_stats, pending_bytes, 80);
EMM_AT_(emm_stats, host_live_bytes, 88);
EMM_AT_(emm_stats, host_reserved_bytes, 96);
EMM_SIZE_(emm_stats, 104);

EMM_AT_(emm_block_info, struct_size, 0);
EMM_AT_(emm_block_info, kind, 4);
EMM_AT_(emm_block_info, base, 8);
EMM_AT_(emm_block_info, size, 16);
EMM_AT_(emm_block_info, device, 24);
EMM_AT_(emm_block_info, reserved, 28);
EMM_SIZE_(emm_block_info, 32);

EMM_AT_(emm_ipc_part, handle, 0);
EMM_AT_(emm_ipc_part, size, 8);
EMM_SIZE_(emm_ipc_part, 16);

EMM_AT_(emm_ipc_source, struct_size, 0);
EMM_AT_(emm_ipc_source, kind, 4);
EMM_AT_(emm_ipc_source, parts, 8);
EMM_AT_(emm_ipc_source, part_count, 16);
EMM_AT_(emm_ipc_source, offset, 24);
EMM_AT_(emm_ipc_source, size, 32);
EMM_AT_(emm_ipc_source, pointer, 40);
EMM_SIZE_(emm_ipc_source, 48);

EMM_AT_(emm_ipc_handle, magic, 0);
EMM_AT_(emm_ipc_handle, version, 4);
EMM_AT_(emm_ipc_handle, kind, 8);
EMM_AT_(emm_ipc_handle, flags, 12);
EMM_AT_(emm_ipc_handle, handle, 16);
EMM_AT_(emm_ipc_handle, offset, 80);
EMM_AT_(emm_ipc_handle, size, 88);
EMM_AT_(emm_ipc_handle, exported_size, 96);
EMM_AT_(emm_ipc_handle, generation, 104);
EMM_AT_(emm_ipc_handle, nonce, 112);
EMM_AT_(emm_ipc_handle, device_uuid, 128);
EMM_AT_(emm_ipc_handle, pci_domain, 144);
EMM_AT_(emm_ipc_handle, pci_bus, 148);
EMM_AT_(emm_ipc_handle, pci_device, 152);
EMM_AT_(emm_ipc_handle, checksum, 156);
EMM_SIZE_(emm_ipc_handle, 160);

EMM_AT_(emm_plugin, struct_size, 0);
EMM_AT_(emm_plugin, interface_version, 4);
EMM_AT_(emm_plugin, interface_minor, 8);
EMM_AT_(emm_plugin, reserved, 12);
EMM_AT_(emm_plugin, name, 16);
EMM_AT_(emm_plugin, version, 24);
EMM_AT_(emm_plugin, description, 32);
EMM_AT_(emm_plugin, capabilities, 40);
EMM_AT_(emm_plugin, options, 48);
EMM_AT_(emm_plugin, create, 56);
EMM_AT_(emm_plugin, destroy, 64);
EMM_AT_(emm_plugin, initialize, 72);
EMM_AT_(emm_plugin, memalloc, 80);
EMM_AT_(emm_plugin, memfree, 88);
EMM_AT_(emm_plugin, memhostalloc, 96);
EMM_AT_(emm_plugin, memhostfree, 104);
EMM_AT_(emm_plugin, mempin, 112);
EMM_AT_(emm_plugin, memunpin, 120);
EMM_AT_(emm_plugin, memallocmanaged, 128);
EMM_AT_(emm_plugin, memfreemanaged, 136);
EMM_AT_(emm_plugin, get_memory_info, 144);
EMM_AT_(emm_plugin, get_ipc_handle, 152);
EMM_AT_(emm_plugin, release_ipc_handle, 160);
EMM_AT_(emm_plugin, reset, 168);
EMM_AT_(emm_plugin, defer_cleanup, 176);
EMM_AT_(emm_plugin, trim, 184);
EMM_AT_(emm_plugin, query, 192);
EMM_AT_(emm_plugin, record_use, 200);
EMM_AT_(emm_plugin, stream_notice, 208);
EMM_AT_(emm_plugin, set_access, 216);
EMM_AT_(emm_plugin, get_stats, 224);
EMM_SIZE_(emm_plugin, 232);

#undef EMM_PIN_
#undef EMM_AT_
#undef EMM_SIZE_

#endif

/*
 * emm/emm.h: the interface for applications. C99; compiles alone and needs no cuda.h.
 *
 * A plugin serves the allocations of each CUDA context. The environment variable EMM_PLUGIN names
 * the plugin when the program is launched; otherwise the program chooses one with emm_set_plugin.
 * If neither names one, `passthrough` serves, straight from the driver. The rules on streams at the
 * top of emm/plugin.h hold here too.
 *
 * Unless a function says otherwise:
 *   - Any thread may call it, with any or no current CUDA context. A signal handler may not: as
 *     with malloc, the handler could wait for ever for a lock that its own thread holds.
 *   - A function returns EMM_OK, a positive notice, or a negative error. emm_last_error() describes
 *     the error.
 *   - Outputs come last, and a failure leaves them untouched. Sizes are in bytes.
 *   - EMM_E_INVALID_VALUE: a required argument is NULL, the call has no such flag, or the
 *     `struct_size` of a struct to be filled is 0, because the caller has not set it.
 *   - With a context: EMM_E_RETIRED after emm_context_retire or when the CUDA context has died,
 *     EMM_E_SHUT_DOWN after emm_shutdown, EMM_E_DEVICE_LOST after a sticky device error. In these
 *     states a free succeeds, does nothing and is counted (emm_get_counters).
 *   - No exception, longjmp or pthread_exit may leave a function that emm calls (hook, callback,
 *     finalizer, visitor). pthread_cancel takes effect while the plugin works on an allocation or a
 *     free, or after the call.
 *   - EMM_E_FORKED, whatever the arguments: in a forked child, if the parent had loaded the driver
 *     or was in a call at the fork. These functions still work there: emm_version, emm_status_text,
 *     emm_status_name, emm_last_error, emm_array_validate, emm_array_get_layout and
 *     emm_ipc_is_name.
 */
#ifndef EMM_EMM_H
#define EMM_EMM_H

#define EMM_WITHOUT_PLUGIN_HELPERS
#include <emm/plugin.h>
#undef EMM_WITHOUT_PLUGIN_HELPERS

#ifdef __cplusplus
extern "C" {
#endif

/* The version of these headers. EMM_VERSION_NUMBER is for comparisons: 0.1.0 is 100. */
#define EMM_VERSION_MAJOR 0
#define EMM_VERSION_MINOR 1
#define EMM_VERSION_PATCH 0
#define EMM_VERSION_NUMBER (EMM_VERSION_MAJOR * 10000 + EMM_VERSION_MINOR * 100 + EMM_VERSION_PATCH)

/* The version of the library in use: "0.1.0". */
EMM_API const char *emm_version(void);

/* --- errors ----------------------------------------------------------------------------------- */

/*
 * The calling thread's last failed call. Every text is UTF-8 on one line, without control
 * characters, of at most 4 KiB (`json` holds several texts). A text is never NULL, unless its
 * comment says so, and stays valid until the thread's next call into emm. emm cleans the texts of
 * plugins, the system and file names: other bytes become U+FFFD or '?', and a text that is too long
 * loses its middle. The members from `stage` to `json` describe a plugin that did not load; for
 * other errors they are NULL.
 *
 * The struct and `text` keep their addresses as long as the thread lives. They always describe the
 * thread's last failed call. So `text` may stand beside the call, in either order of evaluation:
 *     printf("%d %s\n", emm_memalloc(context, size, stream, &ptr), emm_last_error()->text);
 * Only `text` may stand there: a `code` beside the call may still be the code of an earlier call.
 */
typedef struct emm_error {
    uint32_t struct_size;  /* bytes that the library fills */
    emm_status code;       /* EMM_OK: no call has failed on this thread yet */
    int32_t driver_result; /* the CUresult behind the error, or 0 */
    uint32_t reserved;
    const char *text; /* one sentence: what, where, expected, found */

    const char *stage;        /* parse, resolve, permission, elf, dlopen, symbol, negotiate,
                                 validate, create or initialize */
    const char *path;         /* the file in question; NULL: no file */
    const char *expected;     /* NULL if it does not apply */
    const char *got;          /* NULL if it does not apply */
    const char *hint;         /* advice for the user; NULL: no advice */
    const char *const *tried; /* every path tried; ends with NULL */
    const char *json;         /* the whole error as one JSON object; NULL if `stage` is NULL */

    /* --- since 1.1 --- */

    const char *report; /* of who holds memory, written when memory ran out (EMM_OOM_REPORT): one
                           JSON object, of any length; NULL: no report was written */
} emm_error;

/* The calling thread's last error. Never NULL. Does not count as a call: the texts stay valid. */
EMM_API const emm_error *emm_last_error(void);

/* --- contexts --------------------------------------------------------------------------------- */

/*
 * The record of a CUDA context and of the manager that serves it. The first call makes both, and
 * loads the plugin if need be. Racing threads get the same record. A record lives as long as the
 * process. cuCtxGetId identifies the record: when a new context gets an old CUcontext handle, it
 * gets a new record. A green context is served by its device's primary context: the NULL stream and
 * the per-thread streams then mean those of the primary context. For work on a green context's NULL
 * stream, pass EMM_STREAM_UNORDERED.
 *   EMM_E_NO_CONTEXT   (current) the thread has no current context
 *   EMM_E_RETIRED      this context was retired
 *   EMM_E_REENTERED    called by the plugin while it makes, resets or gives up this context's
 *                      manager; for a context without a manager, while it does so for any context
 *   EMM_E_PLUGIN_*, EMM_E_NO_DRIVER, EMM_E_DRIVER
 */
EMM_API emm_status emm_context_current(emm_context **ret_context);
EMM_API emm_status emm_context_from(struct CUctx_st *cuda_context, emm_context **ret_context);

/* Like emm_context_from, for the primary context of device `device`. emm retains the primary
 * context until emm_shutdown or emm_context_retire. Only this call brings a CUDA context to life: a
 * program without CUDA code of its own starts here. */
EMM_API emm_status emm_context_for_device(int32_t device, emm_context **ret_context);

/*
 * A pool: another emm_context for the same CUDA context, with a manager of its own. The pool has
 * its own statistics, options, pending frees, reset, trim, sections, peers' access and handles. The
 * first call makes the pool; later calls find it by its name. `context` may be any pool of the CUDA
 * context. A name has 1 to 31 characters: letters, digits, '-', '_' and '.'. `options`, as in a
 * spec ("max=2GiB"), replace those of the plugin in force one by one; NULL and "" replace none. The
 * name of a retired pool is free again. "kv#" makes a new pool (kv#1, kv#2) that no name finds.
 *
 * The result of emm_context_current, _from and _for_device stands for the whole CUDA context: its
 * reset resets all pools, and its retirement retires all pools. Streams and captures belong to the
 * CUDA context: an announcement with any pool holds for all. Every other call means one pool.
 * Memory goes back to the pool that it came from. When a pool runs out of memory, emm trims its
 * sibling pools too, as it trims other contexts.
 *   EMM_E_INVALID_VALUE   the name is not valid; or the pool exists, and `options` is not NULL and
 *                         differs from the options that the pool was made with
 *   EMM_E_PLUGIN_SPEC     the plugin does not take the options
 *   EMM_E_RETIRED, EMM_E_BUSY, EMM_E_REENTERED, EMM_E_PLUGIN_*, EMM_E_DRIVER
 */
EMM_API emm_status emm_context_named(emm_context *context, const char *name, const char *options,
                                     emm_context **ret_context);

/* Gets device, CUcontext, id and the pool's name; fills up to the caller's struct_size. */
EMM_API emm_status emm_context_get_info(emm_context *context, emm_context_info *ret_info);

/*
 * Call this before a CUDA context is destroyed. Ends all pools of the CUDA context; for a named
 * pool, ends that pool alone. Pending frees run, the manager is destroyed with all its memory, and
 * handles become inert. The record stays and answers EMM_E_RETIRED. The second call succeeds. No
 * memory of the context may be in use. This includes portable memory that was freed unordered: no
 * other context's work may still use it. Meanwhile only calls that take or make handles may run for
 * this context.
 * If a CUDA context dies without this call, emm retires it later, on one of two occasions: a thread
 * asks for a context that is new to emm, or a thread that last asked for the dead context asks for
 * another. Until then the plugin may give out addresses that have become other memory.
 *   EMM_E_REENTERED   called by the plugin, in a pressure callback, or in an event hook that was
 *                     called for a handle
 */
EMM_API emm_status emm_context_retire(emm_context *context);

/* Drops every allocation of the CUDA context, in all its pools; for a named pool, in that pool
 * alone. Pending frees run first. For the rest, the rules of emm_context_retire hold. If the reset
 * fails, handles are inert all the same, and the next reset that succeeds drops the remaining
 * allocations. */
EMM_API emm_status emm_context_reset(emm_context *context);

/*
 * Returns device memory to the driver and keeps its addresses: pointers, views and graphs stay
 * valid. The call pauses all pools of the CUDA context; for a named pool, that pool alone. `flags`:
 * EMM_PAUSE_KEEP or EMM_PAUSE_DISCARD, and EMM_PAUSE_UNSHARED if need be (emm/plugin.h). Pinned
 * memory, managed memory, and device memory whose export has not ended stay. *ret_released, which
 * may be NULL, gets the bytes that went back.
 * The call waits for the work on the device. From then on the program puts no work on this memory
 * until emm_context_resume has succeeded. Frees, retirement and reset still work; a reset ends the
 * pause. Allocations and exports answer EMM_E_PAUSED, or wait if the plugin's options say so.
 * If one of several pools cannot be paused, emm resumes the pools that this call has paused. If the
 * device has no memory left for such a pool, the pool stays paused, and emm_last_error names it.
 * Both pause and resume may invalidate a capture that is not announced.
 * While the process sleeps by `emm pause`, these calls wait for `emm resume`: pause, resume, reset,
 * and allocations of a paused pool.
 *   EMM_S_IGNORED              (pause) all pools were paused already: *ret_released is 0
 *   EMM_E_OUT_OF_HOST_MEMORY   (pause) no memory for the copy of EMM_PAUSE_KEEP
 *   EMM_E_OUT_OF_MEMORY        (resume) the device has too little memory; try again, or pool by
 *                              pool: resumed pools stay resumed
 *   EMM_E_CAPTURING            (pause) a capture is announced
 *   EMM_E_BUSY                 (pause) in a section (emm_defer_cleanup_begin); or, with
 *                              EMM_PAUSE_UNSHARED, an export has not ended
 *   EMM_E_NOT_SUPPORTED        (pause) the plugin or its options cannot; pool:growth=vmm can
 *   EMM_E_REENTERED            called by the plugin, or from within a pressure callback
 */
EMM_API emm_status emm_context_pause(emm_context *context, uint32_t flags, size_t *ret_released);

/* A flag of emm_context_resume: undoes the latest pause through the same `context`. A pool stays
 * paused if an earlier pause, or a pause by name, has paused it. */
#define EMM_RESUME_UNDO 2u

/* Takes device memory for the same addresses again. `flags`: 0, EMM_RESUME_KEEP_COPY,
 * EMM_RESUME_UNDO or both. The program may use the memory at once. If nothing is paused, the call
 * succeeds. */
EMM_API emm_status emm_context_resume(emm_context *context, uint32_t flags);

/*
 * Copies to `host` the `size` bytes that EMM_PAUSE_KEEP has kept for the device address `ptr`.
 * Paused memory itself cannot be read. Reads from this pool alone, and needs no current context.
 * Size 0 succeeds.
 *   EMM_S_IGNORED         the pool is not paused, or the pause has left this memory in its place
 *                         (spilled, exported): nothing is copied; read the memory itself
 *   EMM_E_NOT_OWNED       for some of these bytes no content is kept
 *   EMM_E_NOT_SUPPORTED   the plugin cannot
 */
EMM_API emm_status emm_context_read_paused(emm_context *context, emm_deviceptr ptr, size_t size,
                                           void *host);

/*
 * Changes an option of the plugin for this pool alone, while the pool serves. The new value holds
 * for later requests, also after a reset. `text` is written as in a spec; NULL means the option's
 * default. Only options that the plugin marks may change (EMM_OPTION_CHANGES; `emm info` names
 * them). Live memory is not touched; idle memory may go back, as in emm_trim. A failure changes
 * nothing.
 *   EMM_E_PLUGIN_SPEC     no such option, or the plugin refuses the value
 *   EMM_E_NOT_SUPPORTED   the option cannot change, or the plugin has no option that can
 *   EMM_E_REENTERED       called by the plugin, or from within a pressure callback
 */
EMM_API emm_status emm_context_set_option(emm_context *context, const char *key, const char *text);

/* Calls `visit` for each context that emm serves, each named pool too. A non-zero result of `visit`
 * ends the walk. */
typedef int (*emm_context_visitor)(emm_context *context, void *user_data);
EMM_API emm_status emm_foreach_context(emm_context_visitor visit, void *user_data);

/* Retires every context. Afterwards allocations answer EMM_E_SHUT_DOWN and frees succeed. emm
 * itself never calls this function: without a call, everything stays until the process ends. */
EMM_API emm_status emm_shutdown(void);

/* --- memory ------------------------------------------------------------------------------------
 *
 * As with sized delete, the caller remembers context, size and flags, and emm keeps nothing for
 * each allocation. An allocation of size 0 succeeds with address 0; an export of size 0 is
 * EMM_E_INVALID_VALUE. A free of address 0 succeeds. In a free, `size` 0 means an unknown size. All
 * plugins that come with emm record their allocations. A plugin that does so refuses an address
 * that is not live (EMM_E_NOT_OWNED) and another size than the request's (EMM_E_INVALID_VALUE). A
 * refused free leaves the memory as it was.
 *
 * Memory that is freed on a capturing stream stays with the graph. The memory goes back once all of
 * these are gone: the graph, and each clone and executable graph that was made of it or updated
 * from it (cuGraphExecUpdate). An updated executable graph keeps the memory of its latest update's
 * graph, and no longer that of earlier graphs. Setting the parameters of single nodes keeps no
 * memory.
 *
 * Out of memory: emm runs pending frees and asks the plugin to trim. If the driver is short of
 * memory, emm does both in the device's other contexts too, and for pinned memory in all contexts.
 * Then emm asks the application to give back memory (emm_set_pressure_callback). emm asks the
 * plugin again after such steps, and answers only then
 *   EMM_E_OUT_OF_MEMORY, EMM_E_OUT_OF_HOST_MEMORY
 * If a request is larger than the device's memory, emm answers at once and gives up no cache. For
 * the plugin's other answers, see the slot of the same name in emm/plugin.h.
 */
EMM_API emm_status emm_memalloc(emm_context *context, size_t size, emm_stream stream,
                                emm_deviceptr *ret_ptr);
EMM_API emm_status emm_memfree(emm_context *context, emm_deviceptr ptr, size_t size,
                               emm_stream stream);

/* Pinned host memory. `flags`: EMM_HOST_PORTABLE, _MAPPED, _WRITE_COMBINED. `ret_device` may be
 * NULL; it gets the device address if EMM_HOST_MAPPED is given, else 0. If the device cannot map
 * host memory, EMM_HOST_MAPPED answers EMM_E_NOT_SUPPORTED. A free needs the flags of the
 * allocation; other flags are EMM_E_NOT_OWNED. */
EMM_API emm_status emm_memhostalloc(emm_context *context, size_t size, uint32_t flags,
                                    void **ret_host, emm_deviceptr *ret_device);
EMM_API emm_status emm_memhostfree(emm_context *context, void *host, size_t size, uint32_t flags,
                                   emm_stream stream);

/* Pins the caller's own memory. With size 0 the call pins nothing, but `host` is required. `flags`:
 * EMM_HOST_PORTABLE, _MAPPED, _READ_ONLY; _MAPPED as in emm_memhostalloc. Unpinning is immediate.
 *   EMM_E_INVALID_VALUE   the process has no such memory; or the process may not write to the
 *                         memory, and the flag EMM_HOST_READ_ONLY is missing
 *   EMM_E_BUSY            a part of the range is pinned already */
EMM_API emm_status emm_mempin(emm_context *context, void *host, size_t size, uint32_t flags,
                              emm_deviceptr *ret_device);
EMM_API emm_status emm_memunpin(emm_context *context, void *host, size_t size);

/* Managed memory. `flags`: EMM_ATTACH_GLOBAL or EMM_ATTACH_HOST. If the plugin has no slots for
 * managed memory, a free waits for the device, as cuMemFree does. In a deferred section or beside a
 * capture, emm puts such a free off. */
EMM_API emm_status emm_memallocmanaged(emm_context *context, size_t size, uint32_t flags,
                                       emm_deviceptr *ret_ptr);
EMM_API emm_status emm_memfreemanaged(emm_context *context, emm_deviceptr ptr, size_t size,
                                      emm_stream stream);

EMM_API emm_status emm_get_memory_info(emm_context *context, size_t *ret_free, size_t *ret_total);

/* The plugin's statistics, up to the caller's struct_size. emm itself counts `failures`: requests
 * for device memory that finally failed. A request that succeeds when emm tries again does not
 * count. */
EMM_API emm_status emm_get_stats(emm_context *context, emm_stats *ret_stats);

/*
 * Restarts the peaks in emm_get_stats, for this pool alone: a peak is then the highest value since
 * this call. The peaks of accounts and of emm_get_driver_usage belong to the process, and go on.
 *   EMM_E_NOT_SUPPORTED   the plugin cannot restart its peaks
 */
EMM_API emm_status emm_context_reset_peaks(emm_context *context);

/* Runs the pending frees, and returns the plugin's cached memory to the driver until at most
 * `keep_bytes` are cached. In a deferred section, or while a capture is announced, pending frees do
 * not run. `ret_released`, which may be NULL, gets the bytes that left the cache. */
EMM_API emm_status emm_trim(emm_context *context, size_t keep_bytes, size_t *ret_released);

/* Describes the live allocation that holds `ptr`; fills up to the caller's struct_size. */
EMM_API emm_status emm_query(emm_context *context, emm_deviceptr ptr, emm_block_info *ret_info);

/* Says that `stream` uses the allocation too: after a free, reuse waits for the work that `stream`
 * holds at that time. A stream of another context is EMM_E_INVALID_VALUE. Instead, let a stream of
 * this context wait for an event of the other stream, and record this context's stream. */
EMM_API emm_status emm_record_use(emm_context *context, emm_deviceptr ptr, size_t size,
                                  emm_stream stream);

/* Lets `peer_device` (an ordinal) use the context's device memory, present and future. This
 * includes memory that the context opens from other processes (emm_memory_open_ipc). For an opened
 * block of cuMemAlloc, cuCtxEnablePeerAccess decides on access. `flags`: EMM_ACCESS_*.
 * EMM_E_INVALID_VALUE unless `peer_device` is another device of the machine. EMM_E_NOT_SUPPORTED if
 * the peer cannot reach this device's memory, or if the plugin cannot give access. */
EMM_API emm_status emm_set_peer_access(emm_context *context, int32_t peer_device, uint32_t flags);

/* --- handles -----------------------------------------------------------------------------------
 *
 * An emm_memory is a counted reference to one allocation: NBEP 7's MemoryPointer, MappedMemory and
 * PinnedMemory. The handle remembers context, size, flags and the manager that the memory came
 * from, which the raw calls leave to the caller. At the end the memory goes back to that manager,
 * whatever plugin, context or thread is current then. NEP 49 asks the same of NumPy's handlers.
 *
 *   - The maker of a handle owns one reference. Any thread may give a reference back, each exactly
 *     once. The last release frees the memory, unless emm_memory_free has freed it before.
 *   - A reset or retirement of the context drops the memory. From then on the handles are inert:
 *     freeing or releasing one succeeds, does nothing and is counted (late_frees). A reset leaves
 *     alone the memory that emm did not allocate (emm_memory_wrap). emm_memory_get_info notices
 *     when a CUDA context has died.
 *   - Handles, unlike the raw calls, may be made, used and released during a reset or retirement of
 *     the context. The reset waits for calls that have begun. A release finds its handle inert. An
 *     allocation waits until the reset is over.
 *   - A handle of size 0 has address 0, and asks nothing of the plugin.
 *   - A function that makes a handle fails as its raw call does: emm_memory_alloc as emm_memalloc,
 *     _hostalloc as emm_memhostalloc, _pin as emm_mempin, _managed as emm_memallocmanaged. If there
 *     is no memory for the handle, the function answers EMM_E_OUT_OF_HOST_MEMORY. After a failure
 *     the owner is still the caller's, and emm does not call the finalizer.
 */
typedef struct emm_memory emm_memory;

/* emm_memory_info.state */
#define EMM_MEMORY_LIVE 1u
#define EMM_MEMORY_FREED 2u /* by emm_memory_free; a view: by the free of its parent */
#define EMM_MEMORY_INERT 3u /* the context was reset, retired or has died since */

/* Gives up the object behind `owner`. emm calls the finalizer once, after giving up the handle's
 * memory, whether or not there was anything to give up. Any thread may be the caller, with any or
 * no current context. The finalizer may call emm. If a handle is released during a reset, emm calls
 * the finalizer after the reset has given up the memory. */
typedef void (*emm_finalizer)(void *owner);

typedef struct emm_memory_info {
    uint32_t struct_size; /* in: sizeof(emm_memory_info) of the caller */
    uint32_t kind;        /* EMM_KIND_* */
    uint32_t state;       /* EMM_MEMORY_* */
    uint32_t flags;       /* EMM_HOST_* or EMM_ATTACH_*, as given */
    emm_context *context;
    emm_deviceptr ptr; /* 0: no device address */
    void *host;        /* NULL: no host address; managed memory has both addresses */
    uint64_t size;
    uint64_t generation; /* of the context, when the handle was made; a reset begins a new one */
    emm_stream stream;   /* the stream that orders the last free */
    void *owner;         /* as given; NULL: none */
    emm_memory *parent;  /* of a view, else NULL; the caller gets no reference to the parent */
} emm_memory_info;

/* Device memory. Unless emm_memory_set_stream names another stream, emm frees the memory on
 * `stream`, which must then exist. EMM_STREAM_PER_THREAD is the stream of the calling thread: if
 * another thread releases the memory, it is freed with EMM_STREAM_UNORDERED. */
EMM_API emm_status emm_memory_alloc(emm_context *context, size_t size, emm_stream stream,
                                    emm_memory **ret_memory);

/* Pinned host memory (EMM_KIND_MAPPED with EMM_HOST_MAPPED, else EMM_KIND_PINNED), and managed
 * memory. Unless emm_memory_set_stream names a stream, emm frees both with EMM_STREAM_UNORDERED. */
EMM_API emm_status emm_memory_hostalloc(emm_context *context, size_t size, uint32_t flags,
                                        emm_memory **ret_memory);
EMM_API emm_status emm_memory_managed(emm_context *context, size_t size, uint32_t flags,
                                      emm_memory **ret_memory);

/* Pins `size` bytes at `host`, which `owner` keeps alive: emm unpins them before it calls
 * `finalizer`. `owner` and `finalizer` may be NULL. The kinds are those of pinned host memory. */
EMM_API emm_status emm_memory_pin(emm_context *context, void *host, size_t size, uint32_t flags,
                                  void *owner, emm_finalizer finalizer, emm_memory **ret_memory);

/* A handle on memory that emm did not allocate, at `ptr`, `host` or both: EMM_KIND_EXTERNAL.
 * Releasing it only calls `finalizer`, which may be NULL, with `owner`.
 *   EMM_E_INVALID_VALUE   both addresses are missing, and the size is not 0 */
EMM_API emm_status emm_memory_wrap(emm_context *context, emm_deviceptr ptr, void *host, size_t size,
                                   void *owner, emm_finalizer finalizer, emm_memory **ret_memory);

/*
 * A handle on the bytes [start, stop) of `memory`. Until its release the view keeps the whole
 * memory alive, and it shares the state of the whole. A view of a view has the same parent. A view
 * cannot be freed on its own.
 *   EMM_E_INVALID_VALUE   the range does not lie within `memory`
 *   EMM_E_ALREADY_FREED
 */
EMM_API emm_status emm_memory_view(emm_memory *memory, size_t start, size_t stop,
                                   emm_memory **ret_view);

/* Takes and gives back one reference. Releasing NULL succeeds. The last release returns the result
 * of freeing the memory; the handle is gone in any case. If the driver or a lack of host memory
 * fails the free, emm tries once more with the pending frees. After that emm calls the finalizer.
 * If the stream is refused (EMM_E_CAPTURING, EMM_E_INVALID_VALUE), the memory stays allocated until
 * a reset. */
EMM_API emm_status emm_memory_retain(emm_memory *memory);
EMM_API emm_status emm_memory_release(emm_memory *memory);

/*
 * Frees the memory now, even if other references exist; release the others as before. The free
 * fails if the driver fails, host memory is short, or the stream is refused (EMM_E_CAPTURING,
 * EMM_E_INVALID_VALUE). Then the memory stays as it was and may be freed again. Memory of another
 * process is given up all the same.
 *   EMM_E_ALREADY_FREED   the second time; nothing happened
 *   EMM_E_INVALID_VALUE   `memory` is a view
 */
EMM_API emm_status emm_memory_free(emm_memory *memory);

/* Names the stream whose work must end before the memory is reused. A view sets its parent's. */
EMM_API emm_status emm_memory_set_stream(emm_memory *memory, emm_stream stream);

/* Fills up to the caller's struct_size. Asks the driver whether the context lives. */
EMM_API emm_status emm_memory_get_info(emm_memory *memory, emm_memory_info *ret_info);

/* --- memory of other processes -----------------------------------------------------------------
 *
 * One process exports device memory and sends the emm_ipc_handle as bytes; another process of the
 * same user opens the handle. The plugin decides the kind of handle (emm_ipc_handle.kind): CUDA's
 * legacy IPC for blocks of cuMemAlloc (passthrough, pool), file descriptors for physical memory
 * (pool:growth=vmm) or for a memory pool (async:ipc=1). emm does not open fabric handles yet. The
 * importer asks the exporter whether the export goes on, and waits 4 s at most. For file
 * descriptors, the exporter must be in the importer's network namespace.
 *
 * The importer may open the memory on another device. If the two devices reach each other, emm maps
 * the memory. If they do not, or with EMM_IPC_STAGED=1 in the environment, emm makes a copy.
 *
 * A handle ends when its export is released or when the exporter ends. emm then refuses to open the
 * handle, unless the two processes have different network namespaces: there emm cannot see the end.
 * Memory that is open by then stays mapped until it is closed, even if the exporter ends.
 */

/*
 * Exports device memory, or the part that a view covers. The export keeps the memory until
 * emm_release_ipc_handle or a reset. Release the export as often as you exported, from this
 * context. Until then emm_memory_free answers EMM_E_BUSY.
 *   EMM_E_NOT_SUPPORTED   not device memory of emm, or of a kind that the driver does not export
 *   EMM_E_INVALID_VALUE   `memory` is of size 0
 *   EMM_E_ALREADY_FREED
 *   EMM_E_NOT_OWNED       a reset has dropped the memory
 */
EMM_API emm_status emm_memory_export(emm_memory *memory, emm_ipc_handle *ret_handle);

/*
 * Opens the export of another process: EMM_KIND_IPC, closed with the last release of the handle.
 * Opening the same export again costs no driver call and gives the same address. A copy is
 * EMM_KIND_DEVICE, memory of the context like any other, and belongs to the caller. Each opening
 * makes a new copy, and no process sees the writes of the other.
 *   EMM_E_INVALID_VALUE   the handle is damaged, or names more memory than exists; or the handle is
 *                         of a device that this process does not see, of another user, or of this
 *                         process
 *   EMM_E_NOT_OWNED       the export was released, or its exporter has ended
 *   EMM_E_BUSY            another context of this device has the export open; or this name or
 *                         address is still open here for memory that the exporter has freed since;
 *                         or the exporter serves too many other processes just now: try again
 *   EMM_E_NOT_SUPPORTED   handles of this kind cannot be opened here
 */
EMM_API emm_status emm_memory_open_ipc(emm_context *context, const emm_ipc_handle *handle,
                                       emm_memory **ret_memory);

/* The raw calls. The caller keeps [ptr, ptr + size) allocated until the export is released.
 *   EMM_E_NOT_OWNED       the context has no live allocation there (a plugin without `query` cannot
 *                         tell which are live); in a release: no such export
 *   EMM_E_INVALID_VALUE   the allocation ends before ptr + size; or `ptr` or `size` is 0 */
EMM_API emm_status emm_get_ipc_handle(emm_context *context, emm_deviceptr ptr, size_t size,
                                      emm_ipc_handle *ret_handle);
EMM_API emm_status emm_release_ipc_handle(emm_context *context, const emm_ipc_handle *handle);

/*
 * The short form of a handle, for interfaces that carry the 64 bytes of a CUipcMemHandle. The name
 * stands for an export, and the importer gets the handle from the exporter. So the exporter must be
 * alive and in the importer's network namespace, whatever the handle's kind. The bytes are plain
 * data that belong to the caller, and as secret as the handle.
 */
typedef struct emm_ipc_name {
    uint8_t bytes[64];
} emm_ipc_name;

/* 1 if the 64 bytes at `bytes` are a name, perhaps a damaged one; else, and for NULL, 0. The first
 * 7 bytes mark a name: no CUipcMemHandle begins with them. */
EMM_API int emm_ipc_is_name(const void *bytes);

/* The name of a handle. The same handle always gives the same name. Asks no other process.
 *   EMM_E_INVALID_VALUE   the handle is damaged
 *   EMM_E_NOT_SUPPORTED   handles of this kind cannot be opened here */
EMM_API emm_status emm_ipc_handle_to_name(const emm_ipc_handle *handle, emm_ipc_name *ret_name);

/* The handle behind a name, for emm_memory_open_ipc. Waits for the exporter, 4 s at most.
 *   EMM_E_INVALID_VALUE   not a name, or a damaged name; the exporter belongs to another user, or
 *                         is this process; or the exporter's answer does not fit the name
 *   EMM_E_NOT_OWNED       the export was released, or its exporter has ended
 *   EMM_E_BUSY            the exporter serves too many other processes just now: try again
 *   EMM_E_NOT_SUPPORTED   the exporter is in another network namespace */
EMM_API emm_status emm_ipc_name_to_handle(const emm_ipc_name *name, emm_ipc_handle *ret_handle);

/* --- streams ----------------------------------------------------------------------------------
 *
 * A registered stream costs less: the plugin need not ask at each call whether the stream is still
 * the same, and whether it captures. Register a stream once it exists, retire it before you destroy
 * it, and announce its captures.
 *
 * A stream in any call must exist: the driver crashes on the handle of a destroyed stream. The
 * stream must also belong to the call's context. The functions of this section and emm_record_use
 * refuse a stream of another context with EMM_E_INVALID_VALUE. So do the frees of every plugin that
 * would not wait for such a stream. A refused call changes nothing. EMM_STREAM_UNORDERED is not a
 * stream, and is refused here in the same way.
 */
EMM_API emm_status emm_stream_register(emm_context *context, emm_stream stream);
EMM_API emm_status emm_stream_retire(emm_context *context, emm_stream stream);

/*
 * Announces that `stream` is about to begin a capture or to join one, or that its capture has just
 * ended. A capture that failed to begin needs this end too: each announcement that succeeds has its
 * end. While a capture is announced, no plugin records an event on the context, and unordered frees
 * are held back.
 * The capture of an unregistered stream may stay unannounced under two conditions. No thread
 * allocates pinned memory, allocates or frees unordered, frees memory that emm_record_use named,
 * trims or retires, in this context. And no thread runs out of memory of the context's device or of
 * pinned memory. Each of these calls may record an event on the context, and CUDA then invalidates
 * the capture. All contexts may use portable pinned memory. So once some was freed unordered, these
 * calls may record events in every context: allocations and unordered frees of pinned memory, and
 * trims.
 */
EMM_API emm_status emm_capture_begin(emm_context *context, emm_stream stream);
EMM_API emm_status emm_capture_end(emm_context *context, emm_stream stream);

/* --- the plugin ------------------------------------------------------------------------------- */

/*
 * Chooses the plugin from code. `spec` is written as in EMM_PLUGIN, for example "pool:max=8GiB".
 * emm loads the file at once, and makes managers later, context by context.
 *   EMM_S_IGNORED   EMM_PLUGIN is set and outranks this call, which only logged a warning
 *   EMM_E_BUSY      emm already serves a context
 *   EMM_E_PLUGIN_*  the plugin did not load; an earlier choice stays in force
 */
EMM_API emm_status emm_set_plugin(const char *spec);

/* Like emm_set_plugin, for a plugin that is linked into the program. `options` is the part of a
 * spec after the colon, "max=8GiB,initial=1GiB", or NULL. */
EMM_API emm_status emm_set_plugin_entry(emm_plugin_entry entry, const char *options);

/* The plugin that serves this process. All texts live as long as the process. emm cleans these
 * texts as those of emm_error, except the option texts: `create` gets them as they are. */
typedef struct emm_plugin_info {
    uint32_t struct_size; /* in: sizeof(emm_plugin_info) of the caller */
    uint32_t abi_major;   /* as the plugin states them */
    uint32_t abi_minor;
    uint32_t reserved;
    const char *name;
    const char *version;     /* "" if the plugin does not say */
    const char *description; /* "" if the plugin does not say */
    const char *path;        /* the real path of its file; NULL for a linked-in plugin */
    const char *build_id;    /* of that file, in hexadecimal; NULL if it has none */
    const char *spec;        /* the spec that chose it */
    const char *selected_by; /* "EMM_PLUGIN", "emm_set_plugin", "emm_set_plugin_entry", "default" */
    uint64_t capabilities;   /* EMM_PLUGIN_* */
    const emm_option *options;       /* never NULL; ends with a NULL name */
    const char *const *option_texts; /* the values in force, in that order; NULL: no value */

    /* --- since 1.2 --- */

    /* The layers over the plugin, the outermost first, with NULL at the end. The members above
     * describe the plugin, but `spec` and `capabilities` are those of plugin and layers together.
     * For each layer `spec` and `capabilities` are its own part, and its own list is empty. */
    const struct emm_plugin_info *const *layers;
} emm_plugin_info;

/*
 * Describes the plugin in force. If no plugin is in force yet, this call loads the selected one. In
 * a list of specs (a;b), a plugin whose `create` or `initialize` fails later still gives way to the
 * next.
 *   EMM_E_PLUGIN_*  no plugin of the selection loads
 */
EMM_API emm_status emm_get_plugin(emm_plugin_info *ret_info);

/* Loads, describes and checks one spec without choosing it; for tools. */
EMM_API emm_status emm_probe_plugin(const char *spec, emm_plugin_info *ret_info);

/*
 * The total that emm_get_memory_info will report in a context of device `device` (an ordinal).
 * Creates no context. Loads the driver and the plugin if need be, and calls cuInit. If the plugin
 * has no get_device_total, the answer is the device's own total. With a list of specs, the plugin
 * in force answers.
 *   EMM_E_INVALID_VALUE   no such device
 *   EMM_E_PLUGIN_*, EMM_E_NO_DRIVER, EMM_E_DRIVER
 */
EMM_API emm_status emm_get_device_total(int32_t device, size_t *ret_total);

/* Walks the folders that emm searches for a bare name, in the order of the search. Calls `visit`
 * with the name and path of each plugin file. A non-zero result of `visit` ends the walk. */
typedef int (*emm_plugin_visitor)(const char *name, const char *path, void *user_data);
EMM_API emm_status emm_foreach_plugin(emm_plugin_visitor visit, void *user_data);

/* --- clean-up and pressure -------------------------------------------------------------------- */

/* A section in which emm returns no memory to the driver, not even on out of memory. Sections nest,
 * for each context. The end of the outermost section runs the pending frees if a limit is passed.
 *   EMM_E_INVALID_VALUE   end without begin */
EMM_API emm_status emm_defer_cleanup_begin(emm_context *context);
EMM_API emm_status emm_defer_cleanup_end(emm_context *context);

/*
 * The process's callback on out of memory. The thread that ran out asks the callback to free at
 * least `bytes` of the context's memory. The callback may call emm, and returns the bytes that it
 * freed. NULL removes the callback.
 */
typedef size_t (*emm_pressure_callback)(emm_context *context, size_t bytes, void *user_data);
EMM_API emm_status emm_set_pressure_callback(emm_pressure_callback callback, void *user_data);

typedef struct emm_pressure_callback_info {
    emm_pressure_callback callback; /* NULL: none */
    void *user_data;
} emm_pressure_callback_info;

/* Like emm_set_pressure_callback, and returns the previous callback. To keep the previous callback
 * in use, pass it in again or call it from the new callback. `ret_previous` may be NULL. */
EMM_API emm_status emm_exchange_pressure_callback(emm_pressure_callback callback, void *user_data,
                                                  emm_pressure_callback_info *ret_previous);

/* --- the log ---------------------------------------------------------------------------------- */

#define EMM_LOG_OFF 0 /* one more level beside EMM_LOG_ERROR to EMM_LOG_DEBUG of emm/plugin.h */

/*
 * Takes a line of the log. `level` is EMM_LOG_ERROR to EMM_LOG_DEBUG. `text` is UTF-8 on one line,
 * without a line end, of at most 4 KiB. The text belongs to emm: copy it. Any thread that calls emm
 * may log a line, while it holds locks of emm. So the callback must not call emm, throw, or wait
 * for a thread that calls emm. One thread at a time is in the callback.
 */
typedef void (*emm_log_callback)(int32_t level, const char *text, void *user_data);

/*
 * Sets the process's callback, which gets the lines of `level` and more urgent ones. Meanwhile
 * standard error gets no lines, unless the user sets EMM_LOG. NULL removes the callback: no thread
 * calls the old one after this function has returned. May be called at any time, also before every
 * other function.
 *   EMM_E_INVALID_VALUE   `level` is not one of EMM_LOG_*
 *   EMM_E_REENTERED       called by the callback
 */
EMM_API emm_status emm_set_log_callback(int32_t level, emm_log_callback callback, void *user_data);

typedef struct emm_log_callback_info {
    emm_log_callback callback; /* NULL: none */
    void *user_data;
    int32_t level; /* EMM_LOG_OFF without a callback */
    uint32_t reserved;
} emm_log_callback_info;

/* Like emm_set_log_callback, and returns the previous callback. To restore the previous callback,
 * pass it in. `ret_previous` may be NULL. */
EMM_API emm_status emm_exchange_log_callback(int32_t level, emm_log_callback callback,
                                             void *user_data, emm_log_callback_info *ret_previous);

/*
 * Sets the least urgent level that standard error gets: EMM_LOG_WARN before the first call.
 *   EMM_S_IGNORED         EMM_LOG is set, and decides
 *   EMM_E_INVALID_VALUE   `level` is not one of EMM_LOG_*
 */
EMM_API emm_status emm_set_log_level(int32_t level);

/* Like emm_set_log_level, and returns the level that the program had chosen before. `ret_previous`
 * may be NULL. */
EMM_API emm_status emm_exchange_log_level(int32_t level, int32_t *ret_previous);

/*
 * Writes a line to emm's log. `level` is EMM_LOG_ERROR to EMM_LOG_DEBUG; `text` is one line of
 * UTF-8, without a line end.
 *   EMM_E_INVALID_VALUE   `level` has another value, or `text` is NULL
 */
EMM_API emm_status emm_log(int32_t level, const char *text);

/* --- events ----------------------------------------------------------------------------------- */

/* The kind of memory that an event is about. */
#define EMM_EVENT_DEVICE 1u
#define EMM_EVENT_HOST 2u /* pinned, by emm_memhostalloc */
#define EMM_EVENT_PIN 3u  /* the caller's own, by emm_mempin and emm_memunpin */
#define EMM_EVENT_MANAGED 4u

/* One allocation or free. Pointers are device addresses, or host addresses for EMM_EVENT_HOST and
 * EMM_EVENT_PIN, as in the calls themselves. */
typedef struct emm_event {
    uint32_t struct_size; /* bytes that the library fills */
    uint32_t memory;      /* EMM_EVENT_* */
    emm_context *context;
    emm_deviceptr old_ptr; /* freed or unpinned; 0: this is an allocation */
    emm_deviceptr new_ptr; /* allocated or pinned; 0: this is a free, or the call failed */
    uint64_t size;         /* as the caller gave it: in a free, 0 means an unknown size */
    emm_stream stream;     /* EMM_STREAM_UNORDERED for calls that have none */
    emm_status status;     /* the result that the caller gets */
    uint32_t reserved;

    /* --- since 1.2 --- */

    const char *tag; /* the tags of the thread (emm_tag_begin), the outermost first, with '/'
                        between them; NULL: no tag. Lives as long as the process */
} emm_event;

/* emm calls the hook after each allocation and free, failed ones included. Allocations of size 0
 * and frees of address 0 do not count. The thread that made the call runs the hook before the call
 * returns; several threads do so at once. emm holds no lock: the hook may call emm, and its own
 * allocations and frees do not call the hook again. */
typedef void (*emm_event_hook)(const emm_event *event, void *user_data);

typedef struct emm_event_hook_info {
    emm_event_hook hook; /* NULL: none */
    void *user_data;
} emm_event_hook_info;

/* Sets the hook of the process; with NULL, there is no hook and events cost nothing.
 * `ret_previous`, which may be NULL, gets the previous hook and its user data. To keep the previous
 * hook in use, call it from the new hook with this data. Calls that other threads have begun may
 * still reach the previous hook after the return. */
EMM_API emm_status emm_set_event_hook(emm_event_hook hook, void *user_data,
                                      emm_event_hook_info *ret_previous);

/*
 * Completes the event log `path` (EMM_EVENT_LOG) of a process that was killed or aborted: turns the
 * content of `path`.spool into rows, and removes the spool. Without a spool, the log is complete:
 * EMM_OK.
 *   EMM_E_BUSY            a living process, perhaps this one, is writing the log
 *   EMM_E_INVALID_VALUE   spool or log is damaged, or no regular file of this user; both stay
 */
EMM_API emm_status emm_event_log_recover(const char *path);

/* --- tags -------------------------------------------------------------------------------------
 *
 * A tag names the work of the calling thread, such as "kv" or "prefill". The allocations from
 * emm_tag_begin to emm_tag_end carry the name: in the event log, for the hook, among live
 * allocations, in reports and profiles. Tags nest, 16 deep at most. Each thread has tags of its
 * own, which need neither driver nor context. emm copies `name`, and leaves out the middle of a
 * name of more than 64 bytes. While emm records nothing, a tag costs almost nothing. A process has
 * room for 65,536 different names, each counted together with the tags around it. Names beyond
 * these limits are left out, and neither call fails. So do not put request numbers in names.
 *   EMM_E_INVALID_VALUE   (begin) the name is empty; (end) no tag has begun on this thread
 */
EMM_API emm_status emm_tag_begin(const char *name);
EMM_API emm_status emm_tag_end(void);

/* --- who holds memory --------------------------------------------------------------------------
 *
 * With EMM_TRACK=module or EMM_TRACK=stack in the environment, emm keeps a record of each live
 * allocation: the library and the line of Python that asked for it, with `stack` also the chain of
 * calls. After either value, `:sample=1/N` keeps one allocation of N, chosen by chance. Without the
 * variable, tracking costs nothing. emm tracks the raw calls and the handles that allocate. emm
 * does not track memory that is only wrapped, or opened from another process.
 */

/* One call of a stack. In a Python frame `function` is set, and `module` is the source file. */
typedef struct emm_frame {
    const char *module; /* path of the program or library; NULL: code of no file */
    uint64_t offset;    /* of the return address in the file as it is mapped, for addr2line; without
                           a file, the address; 0 in Python */
    const char *function; /* qualified name of a Python function; NULL: not a Python frame */
    uint32_t line;        /* in Python; else 0 */
    uint32_t reserved;
} emm_frame;

/* A live allocation. Texts and frames live as long as the process. */
typedef struct emm_allocation {
    uint32_t struct_size; /* bytes that the library fills */
    uint32_t memory;      /* EMM_EVENT_*, as in its events */
    emm_deviceptr ptr;    /* host address for EMM_EVENT_HOST and EMM_EVENT_PIN */
    uint64_t size;        /* as asked for */
    emm_stream stream;    /* EMM_STREAM_UNORDERED for calls that have none */
    uint64_t age_ns;
    uint32_t thread;      /* the thread that asked: its number in the kernel */
    uint32_t sample;      /* how many allocations this one stands for: N of EMM_TRACK, else 1 */
    const char *module;   /* the first on the stack that does more than pass calls on, as emm, the
                             CUDA runtime and libffi do; NULL: code of no file */
    uint64_t offset;      /* of the return address in `module` */
    uint32_t frame_count; /* with EMM_TRACK=module: 1, the line of Python that asked, or 0 */
    uint32_t frame_size;  /* sizeof(emm_frame) of the library: bytes from frame to frame */
    const emm_frame *frames; /* from `module` outwards, 64 at most; then frames of Python (CPython
                                3.9 to 3.13), 32 at most */

    /* --- since 1.2 --- */

    const char *tag; /* as in emm_event, at the time of the allocation */
} emm_allocation;

/* A non-zero result ends the walk. */
typedef int (*emm_allocation_visitor)(const emm_allocation *allocation, void *user_data);

/*
 * Calls `visit` for each allocation of the context that was live when the walk began, in no
 * particular order. emm holds no lock: `visit` may call emm, and other threads go on. Allocations
 * that they free meanwhile may still come; allocations that they make do not. The context may be in
 * any state.
 *   EMM_E_NOT_SUPPORTED   EMM_TRACK is not set
 */
EMM_API emm_status emm_foreach_allocation(emm_context *context, emm_allocation_visitor visit,
                                          void *user_data);

/*
 * Tells emm of `size` bytes of memory of `device` (an ordinal). The caller has taken them directly
 * from the driver (cuMemCreate, arrays), past any plugin. Reports then name the caller as the
 * holder, in the detail that EMM_TRACK chooses. `emm run` tells emm of the calls that it passes on.
 * emm_untrack_driver_memory forgets the id. Id 0 stands for no memory and is always accepted.
 *   EMM_E_NOT_SUPPORTED   EMM_TRACK is not set; *ret_id is 0
 *   EMM_E_NOT_OWNED       (untrack) no such id
 */
EMM_API emm_status emm_track_driver_memory(int32_t device, uint64_t size, uint64_t *ret_id);
EMM_API emm_status emm_untrack_driver_memory(uint64_t id);

/* --- the driver ------------------------------------------------------------------------------- */

typedef struct emm_driver_info {
    uint32_t struct_size;  /* in: sizeof(emm_driver_info) of the caller */
    int32_t cuda_version;  /* 13000 is 13.0 */
    uint32_t simulated;    /* 1: emm's simulated driver */
    uint32_t device_count; /* as cuDeviceGetCount says */
    const char *path;      /* the file that emm loaded */
} emm_driver_info;

/* Loads the driver if need be, calls cuInit and describes the driver.
 *   EMM_E_NO_DRIVER, EMM_E_DRIVER */
EMM_API emm_status emm_get_driver(emm_driver_info *ret_info);

/* A driver entry point, as emm_host.driver gives it; NULL if the driver has none. */
EMM_API emm_function emm_driver_entry(const char *name, int32_t cuda_version);

/*
 * The memory that emm and its plugin took from the driver. emm counts it if EMM_DRIVER_METER=1 is
 * in the environment. Calls of the application itself do not count. Bytes are rounded up to the
 * driver's own granules.
 */
typedef struct emm_driver_usage {
    uint32_t struct_size; /* in: sizeof(emm_driver_usage) of the caller */
    uint32_t metered;     /* 0: not counted, everything below is 0 */
    uint64_t device_bytes;
    uint64_t peak_device_bytes;
    uint64_t host_bytes; /* pinned */
    uint64_t peak_host_bytes;
} emm_driver_usage;

EMM_API emm_status emm_get_driver_usage(emm_driver_usage *ret_usage);

/* Kinds of memory, each with a row in an account. The kinds before EMM_MEMORY_EXTERNAL are device
 * memory of the process, which the device's bound covers. */
#define EMM_MEMORY_BLOCK 0           /* cuMemAlloc */
#define EMM_MEMORY_PHYSICAL 1        /* cuMemCreate, until the last handle and mapping have gone */
#define EMM_MEMORY_POOL 2            /* cuMemPoolCreate: the bytes that a pool has reserved */
#define EMM_MEMORY_ARRAY 3           /* by the elements of its descriptor */
#define EMM_MEMORY_MIPMAPPED_ARRAY 4 /* likewise */
#define EMM_MEMORY_GRAPH_NODE 5      /* cuGraphAddMemAllocNode, as long as the node exists */
#define EMM_MEMORY_EXTERNAL 6        /* cuImportExternalMemory: memory of another API */
#define EMM_MEMORY_MANAGED 7
#define EMM_MEMORY_PINNED 8
#define EMM_MEMORY_KINDS 16 /* rows, with room for more kinds */

typedef struct emm_memory_row {
    uint64_t live; /* how many exist */
    uint64_t bytes;
    uint64_t peak_bytes;
    uint64_t made; /* how many were ever made */
} emm_memory_row;

/* The memory of a device that this process holds. No row includes the driver's own memory for
 * contexts, modules and local memory. */
typedef struct emm_device_account {
    uint32_t struct_size; /* in: sizeof(emm_device_account) of the caller */
    uint32_t is_counted;  /* 1: `managers` is filled, because EMM_LIMIT or EMM_DRIVER_METER=1 is in
                             the environment; 0: `managers` is 0 */
    uint64_t limit_bytes; /* the device's bound (EMM_LIMIT); 0: no bound */
    uint64_t used_bytes;  /* bytes that count against the bound, with those of other processes
                             (EMM_LIMIT_SHARED) and of other copies of libemm in this process.
                             Such copies have rows of their own. If is_counted is 0:
                             `managers_bytes` and the program's rows */
    uint64_t managers_bytes; /* bytes that the plugins report as reserved, in all contexts */
    emm_memory_row managers[EMM_MEMORY_KINDS]; /* taken by plugins through host->driver */
    emm_memory_row program[EMM_MEMORY_KINDS];  /* taken past plugins: see emm_take_driver_memory */
} emm_device_account;

/*
 * The account of device `device` (an ordinal). Loads the driver if need be, and calls cuInit. While
 * another thread makes, resets or gives up a context's manager, `managers_bytes` leaves this
 * context out.
 *   EMM_E_INVALID_VALUE   no such device; or the value of EMM_LIMIT makes no sense
 *   EMM_E_NO_DRIVER, EMM_E_DRIVER
 */
EMM_API emm_status emm_get_device_account(int32_t device, emm_device_account *ret_account);

/* Device memory that the caller is about to take directly from the driver, past any plugin. */
typedef struct emm_driver_memory {
    uint32_t struct_size; /* sizeof(emm_driver_memory) of the caller */
    int32_t device;       /* an ordinal */
    uint32_t kind;        /* EMM_MEMORY_* */
    uint32_t reserved;
    uint64_t bytes;                  /* 0: the caller is about to make a pool */
    struct CUmemPoolHandle_st *pool; /* of EMM_MEMORY_POOL: the pool that `bytes` will come from;
                                        NULL: the caller is about to make the pool */
} emm_driver_memory;

/*
 * Charges the device's account; call emm_take_driver_memory before the driver. If the bound leaves
 * no room, emm first makes room as for an allocation of a plugin. It runs pending frees, trims all
 * contexts of the device, and asks the pressure callback. `emm run` charges the calls that it
 * passes on. With EMM_TRACK, reports name the caller.
 *   keep   The driver's call has succeeded. `pool` is the pool that the call made, else NULL. Each
 *          further keep adds a reference.
 *   give   The driver's call has failed, or one reference has gone. The last reference takes the
 *          charge with it. Always give back the charge of an allocation from a pool after the call:
 *          from then on the pool's own figure counts this memory. If no memory is counted
 *          (is_counted), such an allocation has id 0. Id 0 is accepted and does nothing.
 * EMM_E_OUT_OF_MEMORY   (take) the bound leaves no room; *ret_id stays as it was
 * EMM_E_NOT_OWNED       (keep, give) no such id
 */
EMM_API emm_status emm_take_driver_memory(const emm_driver_memory *memory, uint64_t *ret_id);
EMM_API emm_status emm_keep_driver_memory(uint64_t id, struct CUmemPoolHandle_st *pool);
EMM_API emm_status emm_give_driver_memory(uint64_t id);

/* Calls `visit` with each driver function that was called at least once, and its number of calls. A
 * non-zero result of `visit` ends the walk. */
typedef int (*emm_driver_count_visitor)(const char *name, uint64_t calls, void *user_data);
EMM_API emm_status emm_foreach_driver_count(emm_driver_count_visitor visit, void *user_data);

/* --- counters --------------------------------------------------------------------------------- */

/* The host's own counts since the process began. */
typedef struct emm_counters {
    uint32_t struct_size; /* in: sizeof(emm_counters) of the caller */
    uint32_t reserved;
    uint64_t late_frees;      /* frees after reset, shutdown, retirement or the driver's end */
    uint64_t pending_count;   /* entries in the queues of pending deallocations now */
    uint64_t pending_bytes;   /* bytes behind these entries */
    uint64_t flushes;         /* how often such a queue was emptied */
    uint64_t failed_deferred; /* pending frees that failed when they ran */
    uint64_t dropped;         /* pending frees dropped because their context had died */
    uint64_t memory_retries;  /* allocations tried again after running out of memory */
} emm_counters;

EMM_API emm_status emm_get_counters(emm_counters *ret_counters);

/* --- older names ------------------------------------------------------------------------------ */

/* emm_foreach_driver_count; `visit` cannot end the walk. */
typedef void (*emm_driver_call_visitor)(const char *name, uint64_t calls, void *user_data);
EMM_API emm_status emm_foreach_driver_call(emm_driver_call_visitor visit, void *user_data);

/* emm_ipc_handle_to_name and emm_ipc_name_to_handle. */
EMM_API emm_status emm_ipc_name_of(const emm_ipc_handle *handle, emm_ipc_name *ret_name);
EMM_API emm_status emm_ipc_handle_from(const emm_ipc_name *name, emm_ipc_handle *ret_handle);

#ifdef __cplusplus
}
#endif

#endif

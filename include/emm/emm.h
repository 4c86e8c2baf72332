/*
 * emm/emm.h: the interface for applications. C99; compiles alone and needs no cuda.h.
 *
 * A plugin serves the allocations of each CUDA context. The environment variable EMM_PLUGIN names
 * the plugin. Without the variable, the program may choose a plugin with emm_set_plugin. Otherwise
 * emm uses the plugin `passthrough`, which asks the driver for each allocation. The rules on
 * streams at the top of emm/plugin.h hold here too.
 *
 * Unless a function says otherwise:
 *   - Any thread may call it, with any or no current CUDA context. Do not call it from a signal
 *     handler: as with malloc, the handler could wait for a lock of its own thread.
 *   - A function returns EMM_OK, a positive notice, or a negative error. emm_last_error() describes
 *     the error.
 *   - Outputs come last, and a failure leaves them untouched. Sizes are in bytes.
 *   - EMM_E_INVALID_VALUE: a required argument is NULL, a flag does not belong to the call, or the
 *     caller has not set the `struct_size` of a struct to be filled.
 *   - A call with a context answers EMM_E_RETIRED after emm_context_retire or when the CUDA context
 *     has died, EMM_E_SHUT_DOWN after emm_shutdown, EMM_E_DEVICE_LOST after a sticky device error.
 *     After each of these, a free succeeds and does nothing, and emm counts the free
 *     (emm_get_counters).
 *   - No exception, longjmp or pthread_exit may leave a function that emm calls (hook, callback,
 *     finalizer, visitor). If a thread is cancelled (pthread_cancel) during a call of emm, the
 *     cancellation takes effect only while the plugin allocates or frees memory. At any other point
 *     of the call, the cancellation waits until the call returns.
 *   - In a forked child, a function answers EMM_E_FORKED, whatever its arguments, if at the fork
 *     the parent had loaded the driver or was in a call of emm. These functions still work in such
 *     a child: emm_version, emm_status_text, emm_status_name, emm_last_error, emm_array_validate,
 *     emm_array_get_layout and emm_ipc_is_name.
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
 * characters. Only `json`, which holds several texts, and `report` may exceed 4 KiB. A text is NULL
 * only if its comment says so. A text stays valid until the thread's next call into emm. emm cleans
 * texts of plugins and of the system, and file names: invalid bytes become U+FFFD or '?'. A text
 * that is too long loses its middle. The members from `stage` to `json` describe a plugin that did
 * not load; for other errors they are NULL.
 *
 * The struct, and the buffer of `text`, keep their addresses as long as the thread lives. Each
 * failed call of the thread overwrites their content. So one expression may contain a call and the
 * `text` of its error; the order of evaluation does not matter:
 *     printf("%d %s\n", emm_memalloc(context, size, stream, &ptr), emm_last_error()->text);
 * Do not read `code` in the same expression: the compiler may read `code` before the call.
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
    const char *expected;     /* NULL: not applicable */
    const char *got;          /* NULL: not applicable */
    const char *hint;         /* advice for the user; NULL: no advice */
    const char *const *tried; /* every path tried; ends with NULL */
    const char *json;         /* the whole error as one JSON object; NULL if `stage` is NULL */

    /* --- since ABI 1.1 --- */

    const char *report; /* who held memory when it ran out (EMM_OOM_REPORT), as one JSON object of
                           any length; NULL: emm wrote no report */
} emm_error;

/* The calling thread's last error. Never NULL. Does not count as a call: the texts stay valid. */
EMM_API const emm_error *emm_last_error(void);

/* --- contexts --------------------------------------------------------------------------------- */

/*
 * Gets the emm_context of a CUDA context: emm's record of this context and of its manager. The
 * manager is the object that the plugin makes for the CUDA context.
 * The first call makes record and manager, and loads the plugin if necessary. Racing threads get
 * the same record. A record lives as long as the process. emm tells contexts apart by cuCtxGetId: a
 * new context gets a new record, even if CUDA reuses an old CUcontext handle. A green context gets
 * the record of its device's primary context. In calls with that record, the NULL stream and the
 * per-thread streams are the primary context's. For work on a green context's NULL stream, pass
 * EMM_STREAM_UNORDERED.
 *   EMM_E_NO_CONTEXT   emm_context_current: the thread has no current context
 *   EMM_E_RETIRED      this context was retired
 *   EMM_E_REENTERED    the plugin calls from inside its create, reset or destroy, for the same
 *                      context or for another one that has no manager yet
 *   EMM_E_PLUGIN_*, EMM_E_NO_DRIVER, EMM_E_DRIVER
 */
EMM_API emm_status emm_context_current(emm_context **ret_context);
EMM_API emm_status emm_context_from(struct CUctx_st *cuda_context, emm_context **ret_context);

/* Like emm_context_from, for the primary context of device `device`. emm retains the primary
 * context until emm_shutdown or emm_context_retire. If the device has no primary context yet, the
 * call creates it, so a program without CUDA code of its own can begin with this call. */
EMM_API emm_status emm_context_for_device(int32_t device, emm_context **ret_context);

/*
 * A pool: another emm_context for the same CUDA context, with a manager of its own. The pool has
 * its own statistics, options, pending frees, reset, trim, deferred sections, peers' access and
 * handles. The first call makes the pool; later calls find the pool by its name. `context` may be
 * any pool of the CUDA context. A name has 1 to 31 characters: letters, digits, '-', '_' and '.'.
 * `options` are written as in EMM_PLUGIN ("max=2GiB"). Each option replaces the same option of the
 * plugin in force; NULL and "" replace no option. The name of a retired pool is free again. A name
 * that ends with '#' makes a new pool at each call: "kv#" makes kv#1, then kv#2. No later call
 * finds such a pool by name.
 *
 * The result of emm_context_current, _from and _for_device stands for the whole CUDA context. A
 * reset, retirement, pause or resume of this result applies to all pools. Streams and captures
 * belong to the CUDA context: if a stream is registered with one pool, or a capture is announced
 * with one pool (emm_capture_begin), this holds for all pools. Every other call applies to one
 * pool. Free memory with the pool that it came from. When a pool runs out of memory, emm trims its
 * sibling pools too, as it trims other contexts.
 *   EMM_E_INVALID_VALUE   the name is not valid; or `options` is not NULL, and an existing pool was
 *                         made with other options
 *   EMM_E_PLUGIN_SPEC     the plugin does not take the options
 *   EMM_E_RETIRED, EMM_E_BUSY, EMM_E_REENTERED, EMM_E_PLUGIN_*, EMM_E_DRIVER
 */
EMM_API emm_status emm_context_named(emm_context *context, const char *name, const char *options,
                                     emm_context **ret_context);

/* Gets device, CUcontext, id and the pool's name, up to the caller's struct_size. */
EMM_API emm_status emm_context_get_info(emm_context *context, emm_context_info *ret_info);

/*
 * Call this before a CUDA context is destroyed. Ends all pools of the CUDA context; for a named
 * pool, ends that pool alone. emm runs pending frees, and destroys the manager with all its memory.
 * Handles become inert (see "handles" below). The record stays and answers EMM_E_RETIRED. A second
 * call succeeds. Before the call, all work that uses memory of the context must end. If portable
 * pinned memory (EMM_HOST_PORTABLE) of this context was freed with EMM_STREAM_UNORDERED, the work
 * of other contexts on that memory must end too. During this call, other threads may use this
 * context only through handles (emm_memory).
 * If a CUDA context dies without this call, emm retires the context later. Two events lead to this:
 * any thread asks for a context that is new to emm, or a thread whose latest context was the
 * dead one asks for another context. Until then the plugin may hand out addresses that already
 * belong to other memory.
 *   EMM_E_REENTERED   the caller is the plugin, a pressure callback, or an event hook during a
 *                     call with a handle
 */
EMM_API emm_status emm_context_retire(emm_context *context);

/* Drops every allocation of the CUDA context, in all its pools; for a named pool, in that pool
 * alone. Pending frees run first. The other rules of emm_context_retire hold too. If a reset fails,
 * the handles are inert too, and the next successful reset drops the remaining allocations. */
EMM_API emm_status emm_context_reset(emm_context *context);

/*
 * Returns device memory to the driver and keeps its addresses: pointers, views and graphs stay
 * valid. The call pauses all pools of the CUDA context; for a named pool, that pool alone. `flags`:
 * EMM_PAUSE_KEEP or EMM_PAUSE_DISCARD, optionally with EMM_PAUSE_UNSHARED (emm/plugin.h). These
 * stay in place: pinned memory, managed memory, and device memory that is still exported.
 * *ret_released gets the bytes that went back; `ret_released` may be NULL. The call waits for the
 * work on the device. Until emm_context_resume has succeeded, the program must not let the device
 * use this memory. Frees, retirement and reset still work; a reset ends the pause. Allocations and
 * exports answer EMM_E_PAUSED, or wait if the plugin's options say so.
 * If a pool cannot be paused, the call fails, and emm resumes the pools that the same call has
 * paused. If the device has no memory left for such a resume, the pool stays paused, and
 * emm_last_error names the pool. Both pause and resume may invalidate a capture that is not
 * announced.
 * After `emm pause` has put the process to sleep, these calls wait for `emm resume`: pause, resume,
 * reset, and allocations of a paused pool.
 *   EMM_S_IGNORED              (pause) all pools were paused already: *ret_released is 0
 *   EMM_E_OUT_OF_HOST_MEMORY   (pause) no host memory for the copy of EMM_PAUSE_KEEP
 *   EMM_E_OUT_OF_MEMORY        (resume) the device has too little memory. Try again, or resume one
 *                              pool at a time: resumed pools stay resumed
 *   EMM_E_CAPTURING            (pause) a capture is announced
 *   EMM_E_BUSY                 (pause) a section is open (emm_defer_cleanup_begin). Or memory is
 *                              still exported, and this pause permits no exports: `flags` has
 *                              EMM_PAUSE_UNSHARED, or the plugin lacks EMM_PLUGIN_PAUSE_SHARES
 *   EMM_E_NOT_SUPPORTED        (pause) the plugin cannot pause with its options; `pool` needs
 *                              growth=vmm
 *   EMM_E_REENTERED            called by the plugin, or from within a pressure callback
 */
EMM_API emm_status emm_context_pause(emm_context *context, uint32_t flags, size_t *ret_released);

/* A flag of emm_context_resume: undoes the latest emm_context_pause of the same `context`. The call
 * resumes only the pools that this pause has paused. Pools that were paused before stay paused. */
#define EMM_RESUME_UNDO 2u

/* Takes device memory for the same addresses again. `flags`: 0, EMM_RESUME_UNDO,
 * EMM_RESUME_KEEP_COPY (emm/plugin.h) or both. The program may use the memory at once. If nothing
 * is paused, the call succeeds. */
EMM_API emm_status emm_context_resume(emm_context *context, uint32_t flags);

/*
 * Copies to `host` the `size` bytes that EMM_PAUSE_KEEP has kept for the device address `ptr`.
 * The program cannot read the paused memory itself. The call reads from this pool alone, and needs
 * no current context. Size 0 succeeds.
 *   EMM_S_IGNORED         the pool is not paused, or this memory stayed in place: it lies in
 *                         host memory, or another process has it open. The call copies nothing:
 *                         read the memory itself
 *   EMM_E_NOT_OWNED       no content is kept for some of these bytes
 *   EMM_E_NOT_SUPPORTED   the plugin cannot read paused memory
 */
EMM_API emm_status emm_context_read_paused(emm_context *context, emm_deviceptr ptr, size_t size,
                                           void *host);

/*
 * Changes an option of the plugin for this pool alone, while the pool serves. The new value holds
 * for later requests, also after a reset. `text` is written as in EMM_PLUGIN; NULL means the
 * option's default. An option can change if the plugin marks the option with EMM_OPTION_CHANGES.
 * `emm info` names these options. Live memory stays; idle memory may go back to the driver, as in
 * emm_trim. A failure changes nothing.
 *   EMM_E_PLUGIN_SPEC     no such option, or the plugin refuses the value
 *   EMM_E_NOT_SUPPORTED   this option cannot change, or none of the plugin's options can change
 *   EMM_E_REENTERED       called by the plugin, or from within a pressure callback
 */
EMM_API emm_status emm_context_set_option(emm_context *context, const char *key, const char *text);

/* Calls `visit` for each context that emm serves, including named pools. A non-zero result of
 * `visit` ends the walk. */
typedef int (*emm_context_visitor)(emm_context *context, void *user_data);
EMM_API emm_status emm_foreach_context(emm_context_visitor visit, void *user_data);

/* Retires every context. Afterwards allocations answer EMM_E_SHUT_DOWN and frees succeed. emm
 * itself never calls this function: without a call, everything stays until the process ends. */
EMM_API emm_status emm_shutdown(void);

/* --- memory ------------------------------------------------------------------------------------
 *
 * The caller remembers the context, size and flags of each allocation; emm does not. An allocation
 * of size 0 succeeds with address 0. A free of address 0 succeeds. An export of size 0 is
 * EMM_E_INVALID_VALUE. In a free, `size` 0 means an unknown size. A plugin that records its
 * allocations, as all bundled plugins do, checks each free. The plugin refuses an address that is
 * not live (EMM_E_NOT_OWNED) and a wrong size (EMM_E_INVALID_VALUE). A refused free leaves the
 * memory as it was.
 *
 * Memory that is freed on a capturing stream stays with the graph. The memory goes back to the
 * plugin once all of these are gone: the graph, its clones, and the executable graphs made or
 * updated from them (cuGraphExecUpdate). After an update, an executable graph keeps the memory of
 * the new graph, and no longer the memory of earlier graphs. If a program sets parameters of one
 * node in an executable graph, the graph does not keep memory that these parameters name.
 *
 * If memory runs out, emm runs pending frees and asks the plugin to trim. If the driver is short of
 * memory too, emm repeats both steps in the device's other contexts; for pinned memory, in all
 * contexts. Then emm calls the application's callback (emm_set_pressure_callback). If that frees
 * memory, emm repeats these steps. emm asks the plugin again after each step. A final failure is
 *   EMM_E_OUT_OF_MEMORY, EMM_E_OUT_OF_HOST_MEMORY
 * If a request is larger than the device's memory, emm answers at once and empties no cache. For
 * the plugin's other answers, see the slot of the same name in emm/plugin.h.
 */
EMM_API emm_status emm_memalloc(emm_context *context, size_t size, emm_stream stream,
                                emm_deviceptr *ret_ptr);
EMM_API emm_status emm_memfree(emm_context *context, emm_deviceptr ptr, size_t size,
                               emm_stream stream);

/* Pinned host memory. `flags`: EMM_HOST_PORTABLE, _MAPPED, _WRITE_COMBINED. With EMM_HOST_MAPPED,
 * *ret_device gets the device address, else 0; `ret_device` may be NULL. If the device cannot map
 * host memory, EMM_HOST_MAPPED answers EMM_E_NOT_SUPPORTED. A free needs the flags of the
 * allocation; a free with other flags answers EMM_E_NOT_OWNED. */
EMM_API emm_status emm_memhostalloc(emm_context *context, size_t size, uint32_t flags,
                                    void **ret_host, emm_deviceptr *ret_device);
EMM_API emm_status emm_memhostfree(emm_context *context, void *host, size_t size, uint32_t flags,
                                   emm_stream stream);

/* Pins the caller's own memory. With size 0 the call pins nothing, but `host` is required. `flags`:
 * EMM_HOST_PORTABLE, _MAPPED, _READ_ONLY; _MAPPED as in emm_memhostalloc. Unpinning is immediate.
 *   EMM_E_INVALID_VALUE   the range is not memory of this process. Or the memory is read-only, and
 *                         the flag EMM_HOST_READ_ONLY is missing
 *   EMM_E_BUSY            a part of the range is pinned already */
EMM_API emm_status emm_mempin(emm_context *context, void *host, size_t size, uint32_t flags,
                              emm_deviceptr *ret_device);
EMM_API emm_status emm_memunpin(emm_context *context, void *host, size_t size);

/* Managed memory. `flags`: EMM_ATTACH_GLOBAL or EMM_ATTACH_HOST. If the plugin has no slots for
 * managed memory, a free waits for the device, as cuMemFree does. In a deferred section
 * (emm_defer_cleanup_begin) or during a capture, emm delays such a free. */
EMM_API emm_status emm_memallocmanaged(emm_context *context, size_t size, uint32_t flags,
                                       emm_deviceptr *ret_ptr);
EMM_API emm_status emm_memfreemanaged(emm_context *context, emm_deviceptr ptr, size_t size,
                                      emm_stream stream);

EMM_API emm_status emm_get_memory_info(emm_context *context, size_t *ret_free, size_t *ret_total);

/* Gets the plugin's statistics, up to the caller's struct_size. emm itself counts `failures`: the
 * requests for device memory whose last attempt failed. The figures of a plugin that keeps none are
 * 0. */
EMM_API emm_status emm_get_stats(emm_context *context, emm_stats *ret_stats);

/*
 * Restarts the peaks in emm_get_stats, for this pool alone: a peak is then the highest value since
 * this call. The peaks in emm_get_device_account and emm_get_driver_usage belong to the process,
 * and do not restart.
 *   EMM_E_NOT_SUPPORTED   the plugin cannot restart its peaks
 */
EMM_API emm_status emm_context_reset_peaks(emm_context *context);

/* Runs the pending frees, and returns the plugin's cached memory to the driver until at most
 * `keep_bytes` are cached. In a deferred section pending frees do not run. Beside an announced
 * capture the call may wait for all work of the context. `ret_released`, which may be NULL, gets
 * the bytes that left the cache. */
EMM_API emm_status emm_trim(emm_context *context, size_t keep_bytes, size_t *ret_released);

/* Describes the live allocation that holds `ptr`; fills up to the caller's struct_size. */
EMM_API emm_status emm_query(emm_context *context, emm_deviceptr ptr, emm_block_info *ret_info);

/* Says that `stream` uses the allocation too. After a free, reuse waits for all work that `stream`
 * held at the free. A stream of another context is EMM_E_INVALID_VALUE. If such a stream uses the
 * memory, let a stream of this context wait for an event of that stream, and pass the waiting
 * stream to emm_record_use. */
EMM_API emm_status emm_record_use(emm_context *context, emm_deviceptr ptr, size_t size,
                                  emm_stream stream);

/* Lets `peer_device` (an ordinal) use the context's device memory, present and future. This
 * includes memory that the context opens from other processes (emm_memory_open_ipc). The call has
 * no effect on opened memory that the exporter took from cuMemAlloc: for this memory,
 * cuCtxEnablePeerAccess alone decides about access. `flags`: EMM_ACCESS_*.
 * If `peer_device` is not another device of the machine: EMM_E_INVALID_VALUE. If the peer cannot
 * reach this device's memory, or the plugin cannot give access: EMM_E_NOT_SUPPORTED. */
EMM_API emm_status emm_set_peer_access(emm_context *context, int32_t peer_device, uint32_t flags);

/* --- handles -----------------------------------------------------------------------------------
 *
 * A handle (emm_memory) is a counted reference to one allocation: NBEP 7's MemoryPointer,
 * MappedMemory and PinnedMemory. With the functions above, the raw calls, the caller remembers
 * context, size and flags. A handle remembers them, and the manager of its memory. The last release
 * gives the memory back to this manager, whatever plugin, context or thread is current then.
 *
 *   - The maker of a handle owns one reference. Any thread may release a reference; release each
 *     reference exactly once. The last release frees the memory, unless emm_memory_free has freed
 *     the memory before.
 *   - A reset or retirement of the context drops the memory. From then on the handles are inert: a
 *     free or a release of such a handle succeeds and does nothing, and emm counts the call
 *     (late_frees). A reset does not touch memory that emm did not allocate (emm_memory_wrap).
 *     emm_memory_get_info finds out whether the CUDA context has died.
 *   - Handles, unlike the raw calls, may be made, used and released during a reset or retirement of
 *     the context. The reset waits for calls that began earlier. During the reset, a release finds
 *     the handle inert, and an allocation waits for the end of the reset.
 *   - A handle of size 0 has address 0, and asks nothing of the plugin.
 *   - Each function that makes a handle has the errors of its raw call: emm_memory_alloc those of
 *     emm_memalloc, _hostalloc of emm_memhostalloc, _pin of emm_mempin, _managed of
 *     emm_memallocmanaged. If there is no memory for the handle, the function answers
 *     EMM_E_OUT_OF_HOST_MEMORY. Some of these functions take an object `owner` and its finalizer.
 *     If such a function fails, `owner` still belongs to the caller, and emm does not call the
 *     finalizer.
 */
typedef struct emm_memory emm_memory;

/* emm_memory_info.state */
#define EMM_MEMORY_LIVE 1u
#define EMM_MEMORY_FREED 2u /* by emm_memory_free; a view: by the free of its parent */
#define EMM_MEMORY_INERT 3u /* the context was reset or retired, or has died */

/* The program's function that releases the object behind `owner`. emm calls the finalizer exactly
 * once, after the handle's memory has gone, even if the handle is inert or has no memory. The call
 * comes from any thread, with any or no current context. The finalizer may call emm. If a handle is
 * released during a reset, emm calls the finalizer after the reset has dropped the memory. */
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
    emm_stream stream;   /* the stream on which emm frees the memory */
    void *owner;         /* as given; NULL: none */
    emm_memory *parent;  /* of a view, else NULL; the caller gets no reference to the parent */
} emm_memory_info;

/* Device memory. Unless emm_memory_set_stream names another stream, emm frees the memory on
 * `stream`, which must exist at that time. EMM_STREAM_PER_THREAD is the stream of the calling
 * thread: if another thread releases the memory, it is freed with EMM_STREAM_UNORDERED. */
EMM_API emm_status emm_memory_alloc(emm_context *context, size_t size, emm_stream stream,
                                    emm_memory **ret_memory);

/* Pinned host memory (EMM_KIND_MAPPED with EMM_HOST_MAPPED, else EMM_KIND_PINNED), and managed
 * memory. Unless emm_memory_set_stream names a stream, emm frees both with EMM_STREAM_UNORDERED. */
EMM_API emm_status emm_memory_hostalloc(emm_context *context, size_t size, uint32_t flags,
                                        emm_memory **ret_memory);
EMM_API emm_status emm_memory_managed(emm_context *context, size_t size, uint32_t flags,
                                      emm_memory **ret_memory);

/* Pins `size` bytes at `host`. The object `owner` keeps these bytes alive, so emm calls `finalizer`
 * only after it has unpinned the bytes. `owner` and `finalizer` may be NULL. The kinds are those of
 * emm_memory_hostalloc. */
EMM_API emm_status emm_memory_pin(emm_context *context, void *host, size_t size, uint32_t flags,
                                  void *owner, emm_finalizer finalizer, emm_memory **ret_memory);

/* A handle on memory that emm did not allocate, at `ptr`, `host` or both: EMM_KIND_EXTERNAL.
 * The last release only calls `finalizer`, which may be NULL, with `owner`.
 *   EMM_E_INVALID_VALUE   both addresses are missing, and the size is not 0 */
EMM_API emm_status emm_memory_wrap(emm_context *context, emm_deviceptr ptr, void *host, size_t size,
                                   void *owner, emm_finalizer finalizer, emm_memory **ret_memory);

/*
 * A handle on the bytes [start, stop) of `memory`. Until its release the view keeps the whole
 * memory alive; view and memory share one state. A view of a view has the first view's parent.
 * emm_memory_free refuses a view.
 *   EMM_E_INVALID_VALUE   the range does not lie within `memory`
 *   EMM_E_ALREADY_FREED
 */
EMM_API emm_status emm_memory_view(emm_memory *memory, size_t start, size_t stop,
                                   emm_memory **ret_view);

/* emm_memory_retain takes one reference; emm_memory_release gives one back. Releasing NULL
 * succeeds. The last release returns the result of freeing the memory, and the handle always ends.
 * If the driver fails or host memory is short, emm tries the free once more with the next pending
 * frees. A handle of emm_memory_pin with a finalizer is an exception: emm tries again each time
 * it runs pending frees, and calls the finalizer once the range is unpinned. If the plugin refuses
 * the stream (EMM_E_CAPTURING, EMM_E_INVALID_VALUE), the memory stays allocated until a reset. */
EMM_API emm_status emm_memory_retain(emm_memory *memory);
EMM_API emm_status emm_memory_release(emm_memory *memory);

/*
 * Frees the memory now, even if other references exist. The caller must still release every
 * reference. The free fails if the driver fails, host memory is short, or the plugin refuses the
 * stream (EMM_E_CAPTURING, EMM_E_INVALID_VALUE). After a failure the memory stays as it was, and
 * the caller may try again. But memory of another process counts as freed even after a failure.
 *   EMM_E_ALREADY_FREED   the memory was freed before; nothing happened
 *   EMM_E_INVALID_VALUE   `memory` is a view
 */
EMM_API emm_status emm_memory_free(emm_memory *memory);

/* Names the stream whose work must end before the memory is reused. For a view, the call sets the
 * stream of the parent. */
EMM_API emm_status emm_memory_set_stream(emm_memory *memory, emm_stream stream);

/* Fills up to the caller's struct_size. Asks the driver whether the context lives. */
EMM_API emm_status emm_memory_get_info(emm_memory *memory, emm_memory_info *ret_info);

/* --- memory of other processes -----------------------------------------------------------------
 *
 * One process exports device memory and sends the emm_ipc_handle as bytes; another process of the
 * same user opens the handle. The plugin decides the kind of handle (emm_ipc_handle.kind). For
 * blocks of cuMemAlloc (passthrough, pool) the kind is CUDA's legacy IPC. For physical memory
 * (pool:growth=vmm) and for a memory pool (async:ipc=1) the kinds use file descriptors. emm does
 * not open fabric handles yet. The importer asks the exporter whether the export still exists, and
 * waits 4 s at most. For file descriptors, the exporter must be in the importer's network
 * namespace.
 *
 * The importer may open the memory on another device. If the two devices reach each other, emm maps
 * the memory. Otherwise, or with EMM_IPC_STAGED=1 in the environment, emm makes a copy.
 *
 * A handle ends when its export is released or when the exporter ends. emm refuses to open an ended
 * handle. But between different network namespaces, emm cannot find out that a handle has ended.
 * Memory that the importer has opened before the end stays mapped until the importer closes it,
 * even if the exporter exits.
 */

/*
 * Exports device memory, or the part that a view covers. The export keeps the memory until
 * emm_release_ipc_handle or a reset. Each export needs one release, from this context. Until all
 * exports of the memory are released, emm_memory_free answers EMM_E_BUSY.
 *   EMM_E_NOT_SUPPORTED   the memory is not device memory of emm, or the driver cannot export this
 *                         kind of memory
 *   EMM_E_INVALID_VALUE   `memory` is of size 0
 *   EMM_E_ALREADY_FREED
 *   EMM_E_NOT_OWNED       a reset has dropped the memory
 */
EMM_API emm_status emm_memory_export(emm_memory *memory, emm_ipc_handle *ret_handle);

/*
 * Opens the export of another process, and makes an emm_memory of kind EMM_KIND_IPC. The last
 * release of this emm_memory closes the export. If the export is open already, the call gives the
 * same address and makes no driver call. If emm makes a copy (above), the emm_memory is of
 * EMM_KIND_DEVICE, like any allocation. Each opening makes a new copy, which the caller owns.
 * Neither process sees the other's later writes.
 *   EMM_E_INVALID_VALUE   the handle is damaged, or names more memory than exists; this process
 *                         does not see the handle's device; the exporter belongs to another user,
 *                         or is this process
 *   EMM_E_NOT_OWNED       the export was released, or its exporter has ended
 *   EMM_E_BUSY            another context of this device has the export open. Or this process still
 *                         has memory open that the exporter has freed, and the new export has the
 *                         same CUDA handle or address: close the older memory first. Or the
 *                         exporter serves too many other processes now: try again
 *   EMM_E_NOT_SUPPORTED   handles of this kind cannot be opened here
 */
EMM_API emm_status emm_memory_open_ipc(emm_context *context, const emm_ipc_handle *handle,
                                       emm_memory **ret_memory);

/* The raw calls. The caller keeps [ptr, ptr + size) allocated until the export is released.
 *   EMM_E_NOT_OWNED       the context has no live allocation at `ptr` (only a plugin with `query`
 *                         can tell); in a release: no such export
 *   EMM_E_INVALID_VALUE   the allocation ends before ptr + size; or `ptr` or `size` is 0 */
EMM_API emm_status emm_get_ipc_handle(emm_context *context, emm_deviceptr ptr, size_t size,
                                      emm_ipc_handle *ret_handle);
EMM_API emm_status emm_release_ipc_handle(emm_context *context, const emm_ipc_handle *handle);

/*
 * The short form of a handle, for interfaces that carry the 64 bytes of a CUipcMemHandle. The name
 * stands for an export, and the importer gets the handle from the exporter. So the exporter must be
 * alive and in the importer's network namespace, whatever the handle's kind. A name needs no
 * release. Keep it as secret as the handle.
 */
typedef struct emm_ipc_name {
    uint8_t bytes[64];
} emm_ipc_name;

/* Returns 1 if the 64 bytes at `bytes` are a name, even a damaged one; 0 for other bytes and for
 * NULL. The first 7 bytes mark a name: no CUipcMemHandle begins with them. */
EMM_API int emm_ipc_is_name(const void *bytes);

/* The name of a handle. The same handle always gives the same name. Asks no other process.
 *   EMM_E_INVALID_VALUE   the handle is damaged
 *   EMM_E_NOT_SUPPORTED   handles of this kind cannot be opened here */
EMM_API emm_status emm_ipc_handle_to_name(const emm_ipc_handle *handle, emm_ipc_name *ret_name);

/* The handle behind a name, for emm_memory_open_ipc. Waits for the exporter, 4 s at most.
 *   EMM_E_INVALID_VALUE   the bytes are no name, or a damaged name; the exporter belongs to another
 *                         user, or is this process; or the exporter's answer does not fit the name
 *   EMM_E_NOT_OWNED       the export was released, or its exporter has ended
 *   EMM_E_BUSY            the exporter serves too many other processes now: try again
 *   EMM_E_NOT_SUPPORTED   the exporter is in another network namespace */
EMM_API emm_status emm_ipc_name_to_handle(const emm_ipc_name *name, emm_ipc_handle *ret_handle);

/* --- streams ----------------------------------------------------------------------------------
 *
 * Register a stream to make its calls cheaper. For an unregistered stream, the plugin asks the
 * driver at each call whether the stream is still the same, and whether it captures. Register a
 * stream after its creation, announce its captures, and retire the stream before its destruction.
 *
 * A stream in any call must exist: the driver crashes on the handle of a destroyed stream. The
 * stream must also belong to the call's context. emm_capture_begin and emm_record_use refuse a
 * stream of another context with EMM_E_INVALID_VALUE. emm_stream_register refuses such a stream if
 * the plugin keeps streams, and frees refuse it if the plugin cannot wait for the stream. A refused
 * call changes nothing. The functions of this section also refuse EMM_STREAM_UNORDERED, which is
 * not a stream.
 */
EMM_API emm_status emm_stream_register(emm_context *context, emm_stream stream);
EMM_API emm_status emm_stream_retire(emm_context *context, emm_stream stream);

/*
 * emm_capture_begin announces that `stream` is about to begin or join a capture. emm_capture_end
 * announces that the capture has just ended. Call emm_capture_end once for each emm_capture_begin
 * that succeeded, even if the capture itself failed to begin, and with the same `stream`: other
 * streams are refused with EMM_E_INVALID_VALUE. While a capture is announced, no plugin records an
 * event on the context. Unordered frees wait for its end, or for a trim or a request that finds no
 * other memory: these wait for all work of the context.
 * Only an unregistered stream may capture without an announcement. During such a capture no thread
 * may make these calls in this context: an allocation of pinned memory, an unordered allocation or
 * free, a free of memory that emm_record_use named, a trim, a change of an option, a pause, a
 * resume, a retirement. Nor may any thread's allocation run out of the device's memory or of
 * pinned memory. Each of these calls may record an event on the context, and CUDA then invalidates
 * the capture. If any context has freed portable pinned memory with EMM_STREAM_UNORDERED, no thread
 * may make these calls in any context: allocations of pinned memory, unordered frees of pinned
 * memory, and trims. Each of these calls may record events in every context.
 */
EMM_API emm_status emm_capture_begin(emm_context *context, emm_stream stream);
EMM_API emm_status emm_capture_end(emm_context *context, emm_stream stream);

/* --- the plugin ------------------------------------------------------------------------------- */

/*
 * Chooses the plugin from code. `spec` is written as in EMM_PLUGIN, for example "pool:max=8GiB".
 * emm loads the file at once, and makes managers later, context by context.
 *   EMM_S_IGNORED   EMM_PLUGIN is set and decides; this call only logged a warning
 *   EMM_E_BUSY      emm already serves a context
 *   EMM_E_PLUGIN_*  the plugin did not load; an earlier choice stays in force
 */
EMM_API emm_status emm_set_plugin(const char *spec);

/* Like emm_set_plugin, for a plugin that is linked into the program. `options` is written as the
 * part of EMM_PLUGIN after the colon, "max=8GiB,initial=1GiB"; NULL: no options. */
EMM_API emm_status emm_set_plugin_entry(emm_plugin_entry entry, const char *options);

/* The plugin that serves this process. All texts live as long as the process. emm cleans these
 * texts as it cleans the texts of emm_error, except `option_texts` and `path`: these are the texts
 * that `create` gets, and the bytes that name the file. */
typedef struct emm_plugin_info {
    uint32_t struct_size; /* in: sizeof(emm_plugin_info) of the caller */
    uint32_t abi_major;   /* as the plugin states them */
    uint32_t abi_minor;
    uint32_t reserved;
    const char *name;
    const char *version;     /* "" if the plugin does not say */
    const char *description; /* "" if the plugin does not say */
    const char *path;        /* the real path of its file; NULL for a linked-in plugin */
    const char *build_id;    /* of that file, in hexadecimal; NULL: no build id */
    const char *spec;        /* the spec that chose the plugin */
    const char *selected_by; /* "EMM_PLUGIN", "emm_set_plugin", "emm_set_plugin_entry", "default" */
    uint64_t capabilities;   /* EMM_PLUGIN_* */
    const emm_option *options;       /* never NULL; ends with a NULL name */
    const char *const *option_texts; /* the value of each option; NULL: no value */

    /* --- since ABI 1.2 --- */

    /* The layers over the plugin, the outermost first, with NULL at the end. The members above
     * describe the plugin, but `spec` and `capabilities` are those of plugin and layers together.
     * In the emm_plugin_info of a layer, `spec` and `capabilities` describe that layer alone, and
     * `layers` is an empty list. */
    const struct emm_plugin_info *const *layers;
} emm_plugin_info;

/*
 * Describes the plugin in force. If no plugin is in force yet, this call loads the selected plugin.
 * With a list of specs (a;b), the plugin may change: if its `create` or `initialize` fails later,
 * emm takes the next plugin of the list.
 *   EMM_E_PLUGIN_*  no plugin of the selection loads
 */
EMM_API emm_status emm_get_plugin(emm_plugin_info *ret_info);

/* Loads, describes and checks one spec without choosing it; for tools. */
EMM_API emm_status emm_probe_plugin(const char *spec, emm_plugin_info *ret_info);

/*
 * Gets the total that emm_get_memory_info will report in a context of device `device` (an ordinal).
 * The call creates no context. It loads the driver and the plugin if necessary, and calls cuInit.
 * If the plugin has no get_device_total, the answer is the device's own total. With a list of
 * specs, the plugin in force answers.
 *   EMM_E_INVALID_VALUE   no such device
 *   EMM_E_PLUGIN_*, EMM_E_NO_DRIVER, EMM_E_DRIVER
 */
EMM_API emm_status emm_get_device_total(int32_t device, size_t *ret_total);

/* Walks the folders that emm searches for a bare name, in the order of the search. Calls `visit`
 * with the name and path of each plugin file. A non-zero result of `visit` ends the walk. */
typedef int (*emm_plugin_visitor)(const char *name, const char *path, void *user_data);
EMM_API emm_status emm_foreach_plugin(emm_plugin_visitor visit, void *user_data);

/* --- clean-up and pressure -------------------------------------------------------------------- */

/* A section in which emm returns no memory to the driver, not even on out of memory. Each context
 * has its own sections, which nest. At the end of the outermost section emm runs the pending frees
 * if they exceed a limit (EMM_MAX_PENDING_DEALLOCS_*).
 *   EMM_E_INVALID_VALUE   end without begin */
EMM_API emm_status emm_defer_cleanup_begin(emm_context *context);
EMM_API emm_status emm_defer_cleanup_end(emm_context *context);

/*
 * The process's callback on out of memory. The thread that ran out of memory calls the callback, to
 * free at least `bytes`, in the context or in another context or pool of its device. The callback
 * may call emm, and returns the bytes that it freed. NULL removes the callback.
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
 * may call the callback, and may hold locks of emm meanwhile. So the callback must not call emm,
 * throw, or wait for a thread that calls emm. Two threads never run the callback at the same time.
 */
typedef void (*emm_log_callback)(int32_t level, const char *text, void *user_data);

/*
 * Sets the process's callback. The callback gets the lines of `level` and all more urgent lines.
 * While a callback is set, standard error gets no lines, unless the user sets EMM_LOG. The thread
 * that works for `emm pause` or `emm resume` calls no callback: its lines go where EMM_LOG says.
 * NULL removes the callback: no thread calls the removed callback after this function has returned.
 * The program may call this function at any time, even before any other function.
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

    /* --- since ABI 1.2 --- */

    const char *tag; /* the tags of the thread (emm_tag_begin), the outermost first, with '/'
                        between them; NULL: no tag. Lives as long as the process */
} emm_event;

/* emm calls the hook after each allocation and free, failed ones included. Allocations of size 0
 * and frees of address 0 do not count. The thread that made the call runs the hook before the call
 * returns; several threads may run the hook at once. emm holds no lock, so the hook may call emm.
 * Allocations and frees by the hook do not call the hook again. */
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
 * Completes the event log `path` (EMM_EVENT_LOG) of a process that was killed or aborted. The call
 * turns the content of the file `path`.spool into rows, and removes that file. Without such a file,
 * the log is complete: EMM_OK.
 *   EMM_E_BUSY            a living process, perhaps this one, is writing the log
 *   EMM_E_INVALID_VALUE   the spool or the log is damaged, or is not a regular file of this user;
 *                         both files stay as they are
 */
EMM_API emm_status emm_event_log_recover(const char *path);

/* --- tags -------------------------------------------------------------------------------------
 *
 * A tag names the work of the calling thread, such as "kv" or "prefill". The allocations from
 * emm_tag_begin to emm_tag_end carry the name: in the event log, for the hook, among live
 * allocations, in reports and profiles. Tags nest, 16 deep at most. Each thread has tags of its
 * own, which need neither driver nor context. emm copies `name`, and leaves out the middle of a
 * name of more than 64 bytes. While emm records nothing, a tag costs almost nothing. A process has
 * room for 65,536 different names; the same name inside other tags counts again. If tags
 * nest deeper than 16, or all 65,536 names are in use, emm leaves the name out, and the call
 * succeeds. Do not put request numbers into names: they would use up the room.
 *   EMM_E_INVALID_VALUE   (begin) the name is empty; (end) no tag has begun on this thread
 */
EMM_API emm_status emm_tag_begin(const char *name);
EMM_API emm_status emm_tag_end(void);

/* --- who holds memory --------------------------------------------------------------------------
 *
 * With EMM_TRACK=module or EMM_TRACK=stack in the environment, emm keeps a record of each live
 * allocation. The record names the library and the line of Python that made the request; with
 * `stack` it has the chain of calls too. With `:sample=1/N` behind the value, emm records one
 * allocation of N, chosen by chance. Without the variable, tracking costs nothing. emm tracks the
 * raw calls and the handles that allocate. emm does not track wrapped memory, nor memory opened
 * from another process.
 */

/* One call of a stack. In a Python frame `function` is set, and `module` is the source file. */
typedef struct emm_frame {
    const char *module;   /* path of the program or library; NULL: code outside of files */
    uint64_t offset;      /* of the return address in `module`, for addr2line; if `module` is NULL,
                             the return address itself; in Python, 0 */
    const char *function; /* qualified name of a Python function; NULL: not a Python frame */
    uint32_t line;        /* in Python; else 0 */
    uint32_t reserved;
} emm_frame;

/* A live allocation. Texts and frames live as long as the process. */
typedef struct emm_allocation {
    uint32_t struct_size; /* bytes that the library fills */
    uint32_t memory;      /* EMM_EVENT_*, as in the event of the allocation */
    emm_deviceptr ptr;    /* host address for EMM_EVENT_HOST and EMM_EVENT_PIN */
    uint64_t size;        /* as asked for */
    emm_stream stream;    /* EMM_STREAM_UNORDERED for calls that have none */
    uint64_t age_ns;
    uint32_t thread;         /* the thread that asked: its number in the kernel */
    uint32_t sample;         /* allocations that the record stands for: N of EMM_TRACK, or 1 */
    const char *module;      /* the file of the caller; NULL: code outside of files. emm, the CUDA
                                runtime and libffi only pass calls on, and are no callers */
    uint64_t offset;         /* of the return address in `module` */
    uint32_t frame_count;    /* with EMM_TRACK=module: 1 if a line of Python asked (the frame is
                                that line), else 0 */
    uint32_t frame_size;     /* sizeof(emm_frame) of the library: bytes from frame to frame */
    const emm_frame *frames; /* first the caller in `module`, then its callers, 64 in all; then
                                frames of Python (CPython 3.9 to 3.13), at most 32 */

    /* --- since ABI 1.2 --- */

    const char *tag; /* as in emm_event, at the time of the allocation */
} emm_allocation;

/* A non-zero result ends the walk. */
typedef int (*emm_allocation_visitor)(const emm_allocation *allocation, void *user_data);

/*
 * Calls `visit` for each allocation of the context that was live when the walk began, in no
 * particular order. emm holds no lock: `visit` may call emm, and other threads go on. The walk may
 * include allocations that other threads free during the walk. It includes no allocations that
 * other threads make during the walk. The context may be in any state.
 *   EMM_E_NOT_SUPPORTED   EMM_TRACK is not set
 */
EMM_API emm_status emm_foreach_allocation(emm_context *context, emm_allocation_visitor visit,
                                          void *user_data);

/*
 * Tells emm of `size` bytes of memory of `device` (an ordinal). The caller has taken this memory
 * directly from the driver (cuMemCreate, arrays), without a plugin. Reports then name the caller as
 * the holder, in the detail that EMM_TRACK chooses. `emm run` tells emm of the calls that it passes
 * on. emm_untrack_driver_memory forgets the id. With id 0, emm_untrack_driver_memory succeeds and
 * does nothing.
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

/* Loads the driver if necessary, calls cuInit and describes the driver.
 *   EMM_E_NO_DRIVER, EMM_E_DRIVER */
EMM_API emm_status emm_get_driver(emm_driver_info *ret_info);

/* A driver entry point, as emm_host.driver gives it; NULL if the driver has none. */
EMM_API emm_function emm_driver_entry(const char *name, int32_t cuda_version);

/*
 * The memory that emm and its plugin took from the driver. emm counts this memory if
 * EMM_DRIVER_METER=1 is in the environment. Calls of the application itself do not count. Bytes are
 * rounded up to the driver's own granules.
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
 * memory of the process, and count against the device's bound (EMM_LIMIT). */
#define EMM_MEMORY_BLOCK 0           /* cuMemAlloc */
#define EMM_MEMORY_PHYSICAL 1        /* cuMemCreate, until the last handle and mapping have gone */
#define EMM_MEMORY_POOL 2            /* cuMemPoolCreate: the bytes that a pool has reserved */
#define EMM_MEMORY_ARRAY 3           /* cuArrayCreate: all elements that the descriptor states */
#define EMM_MEMORY_MIPMAPPED_ARRAY 4 /* the same */
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
    uint64_t used_bytes;  /* all bytes that count against the bound. Bytes of other processes
                             (EMM_LIMIT_SHARED), and of other copies of libemm in this process,
                             count too, but are in no row here. If is_counted is 0, this is
                             `managers_bytes` plus the bytes of the program's rows */
    uint64_t managers_bytes; /* bytes that the plugins report as reserved, in all contexts */
    emm_memory_row managers[EMM_MEMORY_KINDS]; /* taken by plugins through host->driver */
    emm_memory_row program[EMM_MEMORY_KINDS];  /* taken without a plugin: emm_take_driver_memory */
} emm_device_account;

/*
 * The account of device `device` (an ordinal). Loads the driver if necessary, and calls cuInit.
 * While another thread makes, resets or destroys a context's manager, `managers_bytes` leaves this
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
    struct CUmemPoolHandle_st *pool; /* if EMM_MEMORY_POOL: the pool that `bytes` will come from;
                                        NULL: the caller is about to make the pool */
} emm_driver_memory;

/*
 * Adds to the device's account the memory that the caller takes directly from the driver. Call
 * emm_take_driver_memory before the driver's function. If the bound leaves no room, emm first makes
 * room as for an allocation of a plugin. emm runs pending frees, trims all contexts of the device,
 * and asks the pressure callback. `emm run` counts the calls that it passes on. With EMM_TRACK,
 * reports name the caller.
 *   - emm_keep_driver_memory: call this after the driver's call has succeeded. If that call made a
 *     pool, pass the pool as `pool`, else NULL. The first call makes one reference, each later call
 *     with the same id adds one.
 *     For an allocation from a pool, the call makes no reference. EMM_E_OUT_OF_MEMORY then means
 *     that the pool has grown above the bound: free the allocation, trim the pool, and report that
 *     there is no memory.
 *   - emm_give_driver_memory: call this if the driver's call has failed, or to drop one reference.
 *     With the last reference the memory no longer counts. For an allocation from a pool,
 *     always call this after the driver's call. After a success the pool's own figure counts the
 *     memory.
 * If is_counted (emm_device_account) is 0, an allocation from a pool has id 0. With id 0, both
 * functions succeed and do nothing.
 * EMM_E_OUT_OF_MEMORY   (take) the bound leaves no room; *ret_id stays as it was
 *                       (keep) a pool has grown above the bound
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

/* emm's own counts since the process began. */
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

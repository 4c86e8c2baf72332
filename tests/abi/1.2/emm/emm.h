/*
 * emm/emm.h: what an application calls. C99; compiles alone and needs no cuda.h.
 *
 * Allocation goes, CUDA context by CUDA context, to the plugin that EMM_PLUGIN names when the
 * program is launched, or that the program chooses with emm_set_plugin; `passthrough`, straight to
 * the driver, if neither names one. What the arguments promise about streams is said at the top of
 * emm/plugin.h and holds here too.
 *
 * Unless a function says otherwise:
 *   - it may be called from any thread, with any or no current CUDA context, but not by a signal
 *     handler: as with malloc, it could wait for ever for a lock that its own thread holds;
 *   - it returns EMM_OK, a positive notice, or a negative error, described by emm_last_error();
 *   - outputs come last and are untouched on failure; sizes are in bytes;
 *   - NULL for a required argument is EMM_E_INVALID_VALUE; so are flags that the call does not
 *     have, and a struct to be filled whose `struct_size` the caller has not set (0);
 *   - with a context: EMM_E_RETIRED after emm_context_retire or when the CUDA context has died,
 *     EMM_E_SHUT_DOWN after emm_shutdown, EMM_E_DEVICE_LOST after a sticky device error. Frees are
 *     then successes that do nothing, and are counted (emm_get_counters);
 *   - no exception, longjmp or pthread_exit may leave a function that emm calls (hook, callback,
 *     finalizer, visitor). pthread_cancel takes effect while the plugin works on an allocation or a
 *     free, or after the call;
 *   - in a forked child of a process that had loaded the driver, or that was in a call at the fork:
 *     EMM_E_FORKED, whatever the arguments are. emm_version, emm_status_text, emm_status_name,
 *     emm_last_error, emm_array_validate, emm_array_get_layout and emm_ipc_is_name are answered
 *     there too.
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
 * What the calling thread's last failing call has to say. Every text is UTF-8 on one line, without
 * control characters, of at most 4 KiB (`json` holds several), never NULL unless said so, and valid
 * until the thread's next call into emm. What a plugin, the system or a file name says otherwise is
 * shown so: other bytes become U+FFFD or '?', and what is too long loses its middle. The second
 * part is about plugins that did not load; elsewhere it is NULL.
 *
 * The struct and `text` stay at one address for as long as the thread lives, and say what its last
 * failing call has to say. So the text may stand beside the call, in either order of evaluation:
 *     printf("%d %s\n", emm_memalloc(context, size, stream, &ptr), emm_last_error()->text);
 * This holds for `text` alone; a `code` beside the call may be the one before.
 */
typedef struct emm_error {
    uint32_t struct_size;  /* bytes that the library fills */
    emm_status code;       /* EMM_OK: nothing has failed on this thread yet */
    int32_t driver_result; /* the CUresult behind it, or 0 */
    uint32_t reserved;
    const char *text; /* one sentence: what, where, expected, found */

    const char *stage;        /* parse, resolve, permission, elf, dlopen, symbol, negotiate,
                                 validate, create or initialize */
    const char *path;         /* the file in question; NULL if there is none */
    const char *expected;     /* NULL if it does not apply */
    const char *got;          /* NULL if it does not apply */
    const char *hint;         /* what to do about it; NULL if there is none */
    const char *const *tried; /* every path tried; ends with NULL */
    const char *json;         /* all of it as one JSON object; NULL if `stage` is NULL */

    /* --- since 1.1 --- */

    const char *report; /* memory ran out, and this was written of who holds it (EMM_OOM_REPORT): as
                           one JSON object, of any length; NULL: nothing was */
} emm_error;

/* The calling thread's last error. Never NULL; it does not count as a call. */
EMM_API const emm_error *emm_last_error(void);

/* --- the log ---------------------------------------------------------------------------------- */

#define EMM_LOG_OFF 0 /* beside EMM_LOG_ERROR to EMM_LOG_DEBUG of emm/plugin.h */

/*
 * A line of the log: `level` is EMM_LOG_ERROR to EMM_LOG_DEBUG; `text` is UTF-8 on one line,
 * without a line end, of at most 4 KiB, and belongs to emm: copy it. Any thread that calls emm may
 * be the one that logs, with locks of emm's held: the callback must not call emm, throw, or wait
 * for a thread that calls emm. One thread at a time is in it.
 */
typedef void (*emm_log_callback)(int32_t level, const char *text, void *user_data);

/*
 * Hands lines of `level` and more urgent ones to the process's `callback`. Meanwhile standard error
 * gets none; a user who sets EMM_LOG has them there, too. NULL removes the callback: it is not
 * called any more once this has returned. At any time, also before everything else.
 *   EMM_E_INVALID_VALUE   `level` is not one of EMM_LOG_*
 *   EMM_E_REENTERED       called by the callback
 */
EMM_API emm_status emm_set_log_callback(int32_t level, emm_log_callback callback, void *user_data);

typedef struct emm_log_callback_info {
    emm_log_callback callback; /* NULL: none */
    void *user_data;
    int32_t level; /* without a callback EMM_LOG_OFF */
    uint32_t reserved;
} emm_log_callback_info;

/* The same, and tells which callback was there before: handed in again, it is back.
 * `ret_previous` may be NULL. */
EMM_API emm_status emm_exchange_log_callback(int32_t level, emm_log_callback callback,
                                             void *user_data, emm_log_callback_info *ret_previous);

/*
 * The least urgent lines that standard error gets: EMM_LOG_WARN if this was never called.
 *   EMM_S_IGNORED         EMM_LOG is set, and decides
 *   EMM_E_INVALID_VALUE   `level` is not one of EMM_LOG_*
 */
EMM_API emm_status emm_set_log_level(int32_t level);

/* The same, and tells the level that the program had chosen before. `ret_previous` may be NULL. */
EMM_API emm_status emm_exchange_log_level(int32_t level, int32_t *ret_previous);

/*
 * Writes a line where emm's own go: `level` is EMM_LOG_ERROR to EMM_LOG_DEBUG, `text` is UTF-8, one
 * line without its end.
 *   EMM_E_INVALID_VALUE   `level` is none of these, or `text` is NULL
 */
EMM_API emm_status emm_log(int32_t level, const char *text);

/* --- the plugin ------------------------------------------------------------------------------- */

/*
 * Chooses the plugin from code: `spec` as in EMM_PLUGIN, for example "pool:max=8GiB". The file is
 * loaded at once; managers are made later, context by context.
 *   EMM_S_IGNORED   EMM_PLUGIN is set and outranks this call, which did nothing but warn
 *   EMM_E_BUSY      a context is being served already
 *   EMM_E_PLUGIN_*  it did not load; what was chosen before stays chosen
 */
EMM_API emm_status emm_set_plugin(const char *spec);

/* The same for a plugin that is linked into the program; `options` is the part of a spec after the
 * colon, "max=8GiB,initial=1GiB", or NULL. */
EMM_API emm_status emm_set_plugin_entry(emm_plugin_entry entry, const char *options);

/* What serves this process. All texts live as long as the process; but for the option texts, which
 * are what create gets, they are shown as those of emm_error are. */
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

    /* The layers over the plugin, which is what all above says, but that `spec` is the whole and
     * `capabilities` are what all of them have. The outermost first, and NULL at the end. `spec` of
     * each is its part of the whole, `capabilities` are its own; its own list is empty. */
    const struct emm_plugin_info *const *layers;
} emm_plugin_info;

/*
 * Tells which plugin is in force. If none is yet, this loads the one that would be; with a list of
 * specs (a;b), a plugin whose `create` or `initialize` fails later still gives way to the next.
 *   EMM_E_PLUGIN_*  nothing in the selection loads
 */
EMM_API emm_status emm_get_plugin(emm_plugin_info *ret_info);

/* Loads, describes and checks one spec without choosing it; for tools. */
EMM_API emm_status emm_probe_plugin(const char *spec, emm_plugin_info *ret_info);

/*
 * Bytes in all that a context of device `device` (an ordinal) has for its program: what
 * emm_get_memory_info will tell of there, known before there is one, and none is made. Loads driver
 * and plugin if need be, and calls cuInit. A plugin that does not say it (get_device_total) is
 * taken to leave the device as it is. With a list of specs the answer is of the plugin in force.
 *   EMM_E_INVALID_VALUE   no such device
 *   EMM_E_PLUGIN_*, EMM_E_NO_DRIVER, EMM_E_DRIVER
 */
EMM_API emm_status emm_get_device_total(int32_t device, size_t *ret_total);

/* Calls `visit` with the name and path of each plugin file in the places where a bare name is
 * looked for, in that order. A non-zero answer ends the walk. */
typedef int (*emm_plugin_visitor)(const char *name, const char *path, void *user_data);
EMM_API emm_status emm_foreach_plugin(emm_plugin_visitor visit, void *user_data);

/* --- the driver ------------------------------------------------------------------------------- */

typedef struct emm_driver_info {
    uint32_t struct_size;  /* in: sizeof(emm_driver_info) of the caller */
    int32_t cuda_version;  /* 13000 is 13.0 */
    uint32_t simulated;    /* 1: emm's simulated driver */
    uint32_t device_count; /* as cuDeviceGetCount says */
    const char *path;      /* the file it was loaded from */
} emm_driver_info;

/* Loads the driver if need be, calls cuInit and describes it.
 *   EMM_E_NO_DRIVER, EMM_E_DRIVER */
EMM_API emm_status emm_get_driver(emm_driver_info *ret_info);

/* A driver entry point, as emm_host.driver gives it; NULL if there is none. */
EMM_API emm_function emm_driver_entry(const char *name, int32_t cuda_version);

/*
 * What emm and its plugin took from the driver, counted if EMM_DRIVER_METER=1 is in the environment
 * (calls of the application itself do not count). Bytes are in the driver's own granules.
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

/* Kinds of memory, as rows of an account. Those before EMM_MEMORY_EXTERNAL are device memory of the
 * process, which the device's bound covers. */
#define EMM_MEMORY_BLOCK 0           /* cuMemAlloc */
#define EMM_MEMORY_PHYSICAL 1        /* cuMemCreate, as long as a handle or a mapping is left */
#define EMM_MEMORY_POOL 2            /* cuMemPoolCreate, by the bytes that a pool has reserved */
#define EMM_MEMORY_ARRAY 3           /* by the elements of its descriptor */
#define EMM_MEMORY_MIPMAPPED_ARRAY 4 /* the same */
#define EMM_MEMORY_GRAPH_NODE 5      /* cuGraphAddMemAllocNode, as long as the node is */
#define EMM_MEMORY_EXTERNAL 6        /* cuImportExternalMemory: another API's */
#define EMM_MEMORY_MANAGED 7
#define EMM_MEMORY_PINNED 8
#define EMM_MEMORY_KINDS 16 /* with room for more */

typedef struct emm_memory_row {
    uint64_t live; /* how many there are */
    uint64_t bytes;
    uint64_t peak_bytes;
    uint64_t made; /* how many there ever were */
} emm_memory_row;

/* The memory that this process holds of a device. No row has the driver's own memory for contexts,
 * modules and local memory. */
typedef struct emm_device_account {
    uint32_t struct_size; /* in: sizeof(emm_device_account) of the caller */
    uint32_t is_counted;  /* 1: `managers` are rows, since EMM_LIMIT or EMM_DRIVER_METER=1 is in the
                             environment; else they are 0 */
    uint64_t limit_bytes; /* the device's bound (EMM_LIMIT); 0: none */
    uint64_t used_bytes;  /* what counts against it, with other processes of EMM_LIMIT_SHARED, and
                             other copies of libemm in this process, which have rows of their own.
                             Where is_counted is 0: `managers_bytes` and the program's rows */
    uint64_t managers_bytes; /* what the plugins say that they have reserved, in all contexts */
    emm_memory_row managers[EMM_MEMORY_KINDS]; /* what they took through host->driver */
    emm_memory_row program[EMM_MEMORY_KINDS];  /* past them: as emm_take_driver_memory was told */
} emm_device_account;

/*
 * The account of device `device` (an ordinal). Loads the driver if need be, and calls cuInit. A
 * context whose manager another thread makes, resets or gives up is left out of `managers_bytes`.
 *   EMM_E_INVALID_VALUE   no such device; EMM_LIMIT makes no sense
 *   EMM_E_NO_DRIVER, EMM_E_DRIVER
 */
EMM_API emm_status emm_get_device_account(int32_t device, emm_device_account *ret_account);

/* Device memory that the caller is about to take from the driver itself, past any plugin. */
typedef struct emm_driver_memory {
    uint32_t struct_size; /* sizeof(emm_driver_memory) of the caller */
    int32_t device;       /* an ordinal */
    uint32_t kind;        /* EMM_MEMORY_* */
    uint32_t reserved;
    uint64_t bytes;                  /* 0 for a pool that is to be made */
    struct CUmemPoolHandle_st *pool; /* of EMM_MEMORY_POOL: the one that `bytes` are to come from;
                                        NULL: one that is to be made */
} emm_driver_memory;

/*
 * Charges the device's account before the driver is asked. Where the bound leaves no room, what an
 * allocation of a plugin does comes first: pending frees, the caches of all contexts of the device,
 * the pressure callback. `emm run` charges so for what it passes on. With EMM_TRACK, reports name
 * the caller.
 *   keep   the driver's call has succeeded. `pool`: the one that was made, else NULL. Again: one
 *          reference more
 *   give   the driver's call has failed, or one reference has gone. The last reference takes the
 *          charge with it. The charge of an allocation from a pool is always given back after the
 *          call, because the pool's own figure counts it then. Id 0, which such an allocation has
 *          where no memory is counted (is_counted), is accepted and does nothing
 * EMM_E_OUT_OF_MEMORY   (take) the bound leaves no room; *ret_id stays as it was
 * EMM_E_NOT_OWNED       (keep, give) there is no such id
 */
EMM_API emm_status emm_take_driver_memory(const emm_driver_memory *memory, uint64_t *ret_id);
EMM_API emm_status emm_keep_driver_memory(uint64_t id, struct CUmemPoolHandle_st *pool);
EMM_API emm_status emm_give_driver_memory(uint64_t id);

/* Calls `visit` with each driver function that was called at least once, and how often. A non-zero
 * answer ends the walk. */
typedef int (*emm_driver_count_visitor)(const char *name, uint64_t calls, void *user_data);
EMM_API emm_status emm_foreach_driver_count(emm_driver_count_visitor visit, void *user_data);

/* The older form: its walk cannot be ended. */
typedef void (*emm_driver_call_visitor)(const char *name, uint64_t calls, void *user_data);
EMM_API emm_status emm_foreach_driver_call(emm_driver_call_visitor visit, void *user_data);

/* --- contexts --------------------------------------------------------------------------------- */

/*
 * The record of a CUDA context and of the manager that serves it, made on first use; the plugin is
 * loaded then if it was not. Racing threads get the same record. It lives as long as the process
 * and is known by cuCtxGetId: a CUcontext handle that has come back for a new context gets a new
 * record. A green context is served by its device's primary context, whose NULL stream and own
 * streams of threads are then meant: for work on a green context's NULL stream, give
 * EMM_STREAM_UNORDERED.
 *   EMM_E_NO_CONTEXT   (current) the thread has none
 *   EMM_E_RETIRED      this context was retired
 *   EMM_E_REENTERED    called by the plugin while it makes, resets or gives up this context's
 *                      manager; for a context without one, while it does so for any
 *   EMM_E_PLUGIN_*, EMM_E_NO_DRIVER, EMM_E_DRIVER
 */
EMM_API emm_status emm_context_current(emm_context **ret_context);
EMM_API emm_status emm_context_from(struct CUctx_st *cuda_context, emm_context **ret_context);

/* The same for the primary context of device `device`, which is retained until emm_shutdown or
 * emm_context_retire. The one call that brings a context to life: a program without CUDA code of
 * its own starts here. */
EMM_API emm_status emm_context_for_device(int32_t device, emm_context **ret_context);

/*
 * A pool of the same CUDA context with a manager of its own: statistics, options, pending frees,
 * reset, trim, sections, peers' access, handles. Made on first use, found by its name afterwards;
 * `context` may be any pool of the CUDA context. A name has 1 to 31 characters: letters, digits,
 * '-', '_' and '.'. `options`, as in a spec ("max=2GiB"), replace those of the plugin in force one
 * by one; NULL and "" replace none. The name of a retired pool is free again.
 *
 * The context that emm_context_current and its siblings answer stands for the CUDA context:
 * resetting it resets all pools, retiring it retires all. Streams and captures are the CUDA
 * context's: announced with any pool, they hold for all. Every other call means one pool; memory
 * goes back to the pool that it came from. A pool that runs out gets what its siblings can trim, as
 * what other contexts can.
 *   EMM_E_INVALID_VALUE   no such name; or the pool is there, and `options`, which are not NULL,
 *                         give other values than those that it was made with
 *   EMM_E_PLUGIN_SPEC     the plugin does not take the options
 *   EMM_E_RETIRED, EMM_E_BUSY, EMM_E_REENTERED, EMM_E_PLUGIN_*, EMM_E_DRIVER
 */
EMM_API emm_status emm_context_named(emm_context *context, const char *name, const char *options,
                                     emm_context **ret_context);

/* Device, CUcontext, id and the pool's name; fills up to the caller's struct_size. */
EMM_API emm_status emm_context_get_info(emm_context *context, emm_context_info *ret_info);

/*
 * Says that a CUDA context is about to be destroyed, and ends all its pools; of a named pool, ends
 * that one alone. Pending frees run, the manager is destroyed with all its memory, the record stays
 * and answers EMM_E_RETIRED. The second time: a success. Handles become inert. No memory of the
 * context may be in use, and only calls that take or make handles may run for it at the same time.
 * That includes portable memory which was freed unordered: no other context's work may still use
 * it.
 * A CUDA context that dies without this is found out, and retired, when emm is asked for a context
 * that is new to it, or its last thread asks for another one. Until then the plugin may give out
 * addresses that have become other memory.
 *   EMM_E_REENTERED   called by the plugin, or from within a pressure callback, or from an event
 *                     hook that was called for a handle
 */
EMM_API emm_status emm_context_retire(emm_context *context);

/* Drops every allocation of the CUDA context, in all its pools, or of a named pool alone, pending
 * frees first; the rest as for retiring. If it fails, handles are inert all the same, and what is
 * left is dropped by the next reset that succeeds. */
EMM_API emm_status emm_context_reset(emm_context *context);

/*
 * Returns the device memory of all pools of the CUDA context to the driver, or of a named pool
 * alone, and keeps its addresses: pointers, views and graphs stay true. `flags`: EMM_PAUSE_KEEP or
 * EMM_PAUSE_DISCARD, and EMM_PAUSE_UNSHARED if need be (emm/plugin.h). Pinned and managed memory,
 * and device memory whose export has not ended, stay. *ret_released, which may be NULL, gets the
 * bytes that went back. The work that is on the device is
 * waited for. From then on the program puts no work on this memory until emm_context_resume has
 * succeeded. Frees go on, and so do a reset, which ends the pause, and a retirement; allocations
 * and exports answer EMM_E_PAUSED, or wait where the plugin's options say so.
 * If one of several pools cannot be paused, those that this call has paused are resumed. One that
 * the device has no memory for by then stays paused, and emm_last_error names it. A capture that is
 * not announced may be invalidated by both calls.
 * While the process sleeps by `emm pause`, both calls, a reset and allocations of a paused pool
 * wait for `emm resume`.
 *   EMM_S_IGNORED              (pause) all of them were paused already: *ret_released is 0
 *   EMM_E_OUT_OF_HOST_MEMORY   (pause) none for the copy of EMM_PAUSE_KEEP
 *   EMM_E_OUT_OF_MEMORY        (resume) the device has not enough; try again, or pool by pool: what
 *                              has been resumed stays so
 *   EMM_E_CAPTURING            (pause) a capture is announced
 *   EMM_E_BUSY                 (pause) in a section (emm_defer_cleanup_begin); or, with
 *                              EMM_PAUSE_UNSHARED, an export has not ended
 *   EMM_E_NOT_SUPPORTED        (pause) the plugin or its options cannot; pool:growth=vmm can
 *   EMM_E_REENTERED            called by the plugin, or from within a pressure callback
 */
EMM_API emm_status emm_context_pause(emm_context *context, uint32_t flags, size_t *ret_released);

/* A flag of emm_context_resume: undoes the latest pause through the same `context`. Pools that an
 * earlier pause has paused, or one by name, stay paused. */
#define EMM_RESUME_UNDO 2u

/* Takes device memory behind the same addresses again. `flags`: 0, EMM_RESUME_KEEP_COPY,
 * EMM_RESUME_UNDO or both. The memory may be used at once. Not paused: a success. */
EMM_API emm_status emm_context_resume(emm_context *context, uint32_t flags);

/*
 * Copies `size` bytes of what EMM_PAUSE_KEEP has kept for the device address `ptr` to `host`: the
 * content of paused memory, which itself cannot be read. Of this pool alone, and needs no current
 * context. Size 0: a success.
 *   EMM_S_IGNORED         the pool is not paused: nothing is copied, and the memory can be read
 *   EMM_E_NOT_OWNED       of some of these bytes no content is kept
 *   EMM_E_NOT_SUPPORTED   the plugin cannot
 */
EMM_API emm_status emm_context_read_paused(emm_context *context, emm_deviceptr ptr, size_t size,
                                           void *host);

/*
 * Gives an option of the plugin another value, for this pool alone, while it serves: for the
 * requests that follow, also after a reset. `text` is as in a spec; NULL: the option's default.
 * Only options that the plugin marks may change (EMM_OPTION_CHANGES; `emm info` says which). Live
 * memory is not touched; idle memory may go back, as in emm_trim. A failure changes nothing.
 *   EMM_E_PLUGIN_SPEC     no such option, or the plugin refuses the value
 *   EMM_E_NOT_SUPPORTED   the option cannot change, or none of the plugin's can
 *   EMM_E_REENTERED       called by the plugin, or from within a pressure callback
 */
EMM_API emm_status emm_context_set_option(emm_context *context, const char *key, const char *text);

/* Calls `visit` for each context that is being served, each named pool too. A non-zero answer ends
 * the walk. */
typedef int (*emm_context_visitor)(emm_context *context, void *user_data);
EMM_API emm_status emm_foreach_context(emm_context_visitor visit, void *user_data);

/* Retires every context. Afterwards allocations answer EMM_E_SHUT_DOWN and frees are successes.
 * Never called by emm itself: without it, everything is left to the end of the process. */
EMM_API emm_status emm_shutdown(void);

/* --- memory ------------------------------------------------------------------------------------
 *
 * Like sized delete: the caller remembers context, size and flags, and emm keeps nothing for each
 * allocation. Size 0 gives address 0 and success; an export of size 0 is EMM_E_INVALID_VALUE.
 * Freeing address 0 is a success. `size` 0 in a free means an unknown size. A plugin that records
 * its allocations, as all that come with emm do, refuses an address that is not live with
 * EMM_E_NOT_OWNED, and another size than the one asked for with EMM_E_INVALID_VALUE. A refused free
 * leaves the memory as it was.
 *
 * Memory that is freed on a stream that captures stays the graph's: until the graph is gone, and
 * each clone and executable graph that was made of it or updated from it (cuGraphExecUpdate). An
 * executable graph that is updated keeps the memory of the graph of its last update, and no longer
 * that of those before. Setting the parameters of single nodes keeps nothing.
 *
 * Out of memory: emm runs pending frees and asks the plugin to trim; does the same in the device's
 * other contexts (for pinned memory in all) if the driver is short; asks the application to give
 * back (emm_set_pressure_callback); and tries once more, before it answers
 *   EMM_E_OUT_OF_MEMORY, EMM_E_OUT_OF_HOST_MEMORY
 * For more device memory than the device has it answers at once, and gives up no cache.
 * What else a plugin may answer stands at the slot of the same name in emm/plugin.h.
 */
EMM_API emm_status emm_memalloc(emm_context *context, size_t size, emm_stream stream,
                                emm_deviceptr *ret_ptr);
EMM_API emm_status emm_memfree(emm_context *context, emm_deviceptr ptr, size_t size,
                               emm_stream stream);

/* Pinned host memory. `flags`: EMM_HOST_PORTABLE, _MAPPED, _WRITE_COMBINED. `ret_device` may be
 * NULL; it gets the device address if EMM_HOST_MAPPED is given, else 0; EMM_E_NOT_SUPPORTED if it
 * is given and the device cannot map host memory. It is freed with the same flags; with others,
 * EMM_E_NOT_OWNED. */
EMM_API emm_status emm_memhostalloc(emm_context *context, size_t size, uint32_t flags,
                                    void **ret_host, emm_deviceptr *ret_device);
EMM_API emm_status emm_memhostfree(emm_context *context, void *host, size_t size, uint32_t flags,
                                   emm_stream stream);

/* Pins memory of the caller's own; of size 0, nothing, but `host` is required. `flags`:
 * EMM_HOST_PORTABLE, _MAPPED, _READ_ONLY; mapping as above. Unpinning is immediate.
 *   EMM_E_INVALID_VALUE   the process has no such memory, or may not write to it and the flag
 *                         EMM_HOST_READ_ONLY is missing
 *   EMM_E_BUSY            a part of it is pinned already */
EMM_API emm_status emm_mempin(emm_context *context, void *host, size_t size, uint32_t flags,
                              emm_deviceptr *ret_device);
EMM_API emm_status emm_memunpin(emm_context *context, void *host, size_t size);

/* Managed memory. `flags`: EMM_ATTACH_GLOBAL or EMM_ATTACH_HOST. Unless the plugin has slots of its
 * own, a free waits for the device, as cuMemFree does; in a deferred section or beside a capture it
 * is put off. */
EMM_API emm_status emm_memallocmanaged(emm_context *context, size_t size, uint32_t flags,
                                       emm_deviceptr *ret_ptr);
EMM_API emm_status emm_memfreemanaged(emm_context *context, emm_deviceptr ptr, size_t size,
                                      emm_stream stream);

EMM_API emm_status emm_get_memory_info(emm_context *context, size_t *ret_free, size_t *ret_total);

/* What the plugin tells, up to the caller's struct_size. `failures` is emm's own: requests for
 * device memory that failed for good. A request that succeeds when emm tries it again is none. */
EMM_API emm_status emm_get_stats(emm_context *context, emm_stats *ret_stats);

/*
 * Begins the peaks in emm_get_stats anew, for this pool alone: from now on they are the highest
 * since this call. Peaks of accounts and of emm_get_driver_usage are the process's, and go on.
 *   EMM_E_NOT_SUPPORTED   the plugin keeps its peaks
 */
EMM_API emm_status emm_context_reset_peaks(emm_context *context);

/* Runs the pending frees, unless in a deferred section or while a capture is announced, and returns
 * the plugin's cached memory to the driver until at most `keep_bytes` are cached. `ret_released`,
 * which may be NULL, tells how much of the cache it was. */
EMM_API emm_status emm_trim(emm_context *context, size_t keep_bytes, size_t *ret_released);

/* The live allocation that holds `ptr`; fills up to the caller's struct_size. */
EMM_API emm_status emm_query(emm_context *context, emm_deviceptr ptr, emm_block_info *ret_info);

/* The allocation is used on `stream` too: after it is freed, reuse waits for what that stream
 * holds at that time. A stream of another context is refused, EMM_E_INVALID_VALUE: let a stream of
 * this context wait for an event of it, and record that one. */
EMM_API emm_status emm_record_use(emm_context *context, emm_deviceptr ptr, size_t size,
                                  emm_stream stream);

/* Lets `peer_device` (an ordinal) use the context's device memory, present and future, and what the
 * context opens of other processes' (emm_memory_open_ipc). What is open as a block of cuMemAlloc, a
 * device reaches as cuCtxEnablePeerAccess lets it. `flags`: EMM_ACCESS_*. EMM_E_INVALID_VALUE
 * unless it is another device of the machine, and EMM_E_NOT_SUPPORTED if it cannot reach this one's
 * memory or the plugin cannot do it. */
EMM_API emm_status emm_set_peer_access(emm_context *context, int32_t peer_device, uint32_t flags);

/* --- handles -----------------------------------------------------------------------------------
 *
 * An emm_memory is a counted reference to one allocation: NBEP 7's MemoryPointer, MappedMemory and
 * PinnedMemory. It knows what the raw calls leave to the caller (context, size, flags, the manager
 * that it came from), and goes home to that manager at its end, whatever plugin, context or thread
 * is current then; NEP 49 asks the same of NumPy's handlers.
 *
 *   - Who makes a handle owns one reference. Each reference is given back once, by any thread; the
 *     memory is freed with the last one, or before by emm_memory_free.
 *   - A reset or retirement of the context drops the memory. Its handles are inert from then on:
 *     freeing or releasing one succeeds, does nothing and is counted (late_frees). Memory that
 *     emm did not allocate (emm_memory_wrap) is left alone by a reset. emm_memory_get_info finds
 *     out a CUDA context that has died.
 *   - Handles, unlike the raw calls, may be made, used and released while the context is being
 *     reset or retired: what has begun is waited for, a release finds its handle inert, and an
 *     allocation waits until the reset is over.
 *   - A handle of size 0 has address 0, and asks nothing of the plugin.
 *   - A function that makes a handle fails as its raw call does (emm_memory_alloc as emm_memalloc,
 *     _hostalloc as emm_memhostalloc, _pin as emm_mempin, _managed as emm_memallocmanaged), or with
 *     EMM_E_OUT_OF_HOST_MEMORY if there is no memory for the handle; the owner is then the
 *     caller's still, and its finalizer is not called.
 */
typedef struct emm_memory emm_memory;

/* emm_memory_info.state */
#define EMM_MEMORY_LIVE 1u
#define EMM_MEMORY_FREED 2u /* by emm_memory_free; a view: its parent */
#define EMM_MEMORY_INERT 3u /* the context was reset, retired or has died since */

/* Gives up what `owner` stands for. Called once, when the handle's memory has been given up,
 * whether or not that did anything; by any thread, with any or no current context. It may call emm.
 * A handle that is released during a reset is finalized when that has given up the memory.
 */
typedef void (*emm_finalizer)(void *owner);

typedef struct emm_memory_info {
    uint32_t struct_size; /* in: sizeof(emm_memory_info) of the caller */
    uint32_t kind;        /* EMM_KIND_* */
    uint32_t state;       /* EMM_MEMORY_* */
    uint32_t flags;       /* EMM_HOST_* or EMM_ATTACH_*, as given */
    emm_context *context;
    emm_deviceptr ptr; /* 0: it has no device address */
    void *host;        /* NULL: it has no host address; managed memory has both */
    uint64_t size;
    uint64_t generation; /* of the context, in which it was made; a reset begins a new one */
    emm_stream stream;   /* where its last free is ordered */
    void *owner;         /* as given; NULL: none */
    emm_memory *parent;  /* of a view, else NULL; the caller gets no reference to it */
} emm_memory_info;

/* Device memory. Freed on `stream`, which must then exist, unless emm_memory_set_stream names
 * another. EMM_STREAM_PER_THREAD is the calling thread's: released by a different one, the memory
 * is freed with EMM_STREAM_UNORDERED. */
EMM_API emm_status emm_memory_alloc(emm_context *context, size_t size, emm_stream stream,
                                    emm_memory **ret_memory);

/* Pinned host memory, EMM_KIND_MAPPED with EMM_HOST_MAPPED, else EMM_KIND_PINNED. Freed with
 * EMM_STREAM_UNORDERED, unless emm_memory_set_stream names a stream; the same for managed memory.
 */
EMM_API emm_status emm_memory_hostalloc(emm_context *context, size_t size, uint32_t flags,
                                        emm_memory **ret_memory);
EMM_API emm_status emm_memory_managed(emm_context *context, size_t size, uint32_t flags,
                                      emm_memory **ret_memory);

/* Pins `size` bytes at `host`, which `owner` keeps: they are unpinned before `finalizer` is called.
 * Both may be NULL. The kinds are those of pinned host memory. */
EMM_API emm_status emm_memory_pin(emm_context *context, void *host, size_t size, uint32_t flags,
                                  void *owner, emm_finalizer finalizer, emm_memory **ret_memory);

/* A handle on memory that is not emm's, at `ptr`, `host` or both: EMM_KIND_EXTERNAL. All that
 * happens at its end is that `finalizer`, which may be NULL, is called with `owner`.
 *   EMM_E_INVALID_VALUE   neither address, and the size is not 0 */
EMM_API emm_status emm_memory_wrap(emm_context *context, emm_deviceptr ptr, void *host, size_t size,
                                   void *owner, emm_finalizer finalizer, emm_memory **ret_memory);

/*
 * A handle on the bytes [start, stop) of `memory`. It keeps the whole alive until it is released,
 * and shares its state; a view of a view has the same parent. It cannot be freed on its own.
 *   EMM_E_INVALID_VALUE   the range does not lie within `memory`
 *   EMM_E_ALREADY_FREED
 */
EMM_API emm_status emm_memory_view(emm_memory *memory, size_t start, size_t stop,
                                   emm_memory **ret_view);

/* Takes and gives back one reference. Releasing NULL is a success. The last release returns what
 * freeing the memory has returned; the handle is gone in any case. If the driver or host memory has
 * failed the free, it is tried once more with the pending frees, and finalized after that. Memory
 * whose stream is refused (EMM_E_CAPTURING, EMM_E_INVALID_VALUE) stays allocated until a reset. */
EMM_API emm_status emm_memory_retain(emm_memory *memory);
EMM_API emm_status emm_memory_release(emm_memory *memory);

/*
 * Frees the memory now, also if there are other references, which are released as before. If
 * the driver or a lack of host memory fails it, or the stream is refused (EMM_E_CAPTURING,
 * EMM_E_INVALID_VALUE), the memory is as it was, and may be freed again; what is another process's
 * is given up all the same.
 *   EMM_E_ALREADY_FREED   the second time; nothing happened
 *   EMM_E_INVALID_VALUE   `memory` is a view
 */
EMM_API emm_status emm_memory_free(emm_memory *memory);

/* Names the stream after whose work the memory may be used again: of a view, that of its parent. */
EMM_API emm_status emm_memory_set_stream(emm_memory *memory, emm_stream stream);

/* Fills up to the caller's struct_size. Asks the driver whether the context lives: 20 ns. */
EMM_API emm_status emm_memory_get_info(emm_memory *memory, emm_memory_info *ret_info);

/* --- memory of other processes -----------------------------------------------------------------
 *
 * One process exports device memory, sends the emm_ipc_handle as bytes, and another of the same
 * user opens it. What kind of handle that is (emm_ipc_handle.kind) is for the plugin to say: CUDA's
 * legacy IPC for blocks of cuMemAlloc (passthrough, pool), file descriptors for physical memory
 * (pool:growth=vmm) or for a memory pool (async:ipc=1). Fabric handles are not opened yet. The
 * importer asks the exporter whether the export goes on, and waits 4 s at most. For descriptors the
 * exporter must be in its network namespace.
 *
 * It may be opened on another device than it lies on: mapped where the devices reach each other,
 * else, or with EMM_IPC_STAGED=1 in the environment, as a copy.
 *
 * A handle ends when its export is released or the exporter ends; opening it afterwards is refused,
 * unless the two processes have different network namespaces, where that cannot be seen. What is
 * open then stays mapped until it is closed, whatever becomes of the exporter.
 */

/*
 * Exports device memory, or the part that a view is. The export refers to the memory, which is kept
 * until emm_release_ipc_handle or a reset: released as often as exported, from this context.
 * Freeing it before (emm_memory_free) is EMM_E_BUSY.
 *   EMM_E_NOT_SUPPORTED   not device memory of emm's, or of a kind that the driver does not export
 *   EMM_E_INVALID_VALUE   `memory` is of size 0
 *   EMM_E_ALREADY_FREED
 *   EMM_E_NOT_OWNED       dropped by a reset
 */
EMM_API emm_status emm_memory_export(emm_memory *memory, emm_ipc_handle *ret_handle);

/*
 * Opens what another process exports: EMM_KIND_IPC, closed with the last release of the handle.
 * Opening the same export again costs no driver call and gives the same address. A copy is
 * EMM_KIND_DEVICE, memory of the context like any other: the caller's, made anew at each opening,
 * and no writer sees the other's writes.
 *   EMM_E_INVALID_VALUE   the handle is damaged, or tells of more than is there; it is of a device
 *                         that this process does not see, of another user, or this process's own
 *   EMM_E_NOT_OWNED       its export was released, or its exporter has ended
 *   EMM_E_BUSY            another context of this device has it open; or what is open here under
 *                         the same name, or at its address, is memory that the exporter has freed
 *                         since; or the exporter serves too many others just now: try again
 *   EMM_E_NOT_SUPPORTED   it is of a kind that cannot be opened here
 */
EMM_API emm_status emm_memory_open_ipc(emm_context *context, const emm_ipc_handle *handle,
                                       emm_memory **ret_memory);

/* The raw calls: the caller keeps [ptr, ptr + size) allocated until the export is released.
 *   EMM_E_NOT_OWNED       no live allocation of the context is there (a plugin without `query`
 *                         cannot tell which are live); in a release: no such export
 *   EMM_E_INVALID_VALUE   the allocation ends before; or `ptr` or `size` is 0 */
EMM_API emm_status emm_get_ipc_handle(emm_context *context, emm_deviceptr ptr, size_t size,
                                      emm_ipc_handle *ret_handle);
EMM_API emm_status emm_release_ipc_handle(emm_context *context, const emm_ipc_handle *handle);

/*
 * The short form of a handle, for interfaces that carry the 64 bytes of a CUipcMemHandle: it names
 * an export, whose handle the importer then gets from the exporter. So the exporter must be alive
 * and in the importer's network namespace, whatever kind the handle is of. The bytes are plain, a
 * caller's own, and as secret as the handle.
 */
typedef struct emm_ipc_name {
    uint8_t bytes[64];
} emm_ipc_name;

/* 1 if the 64 bytes at `bytes` are a name, perhaps a damaged one: their first 7 say so, which no
 * CUipcMemHandle has. Else, and for NULL, 0. */
EMM_API int emm_ipc_is_name(const void *bytes);

/* The name of a handle, always the same; no other process is asked.
 *   EMM_E_INVALID_VALUE   the handle is damaged
 *   EMM_E_NOT_SUPPORTED   it is of a kind that cannot be opened here */
EMM_API emm_status emm_ipc_handle_to_name(const emm_ipc_handle *handle, emm_ipc_name *ret_name);

/* The handle that a name is of, for emm_memory_open_ipc. It waits for the exporter, 4 s at most.
 *   EMM_E_INVALID_VALUE   no name, or a damaged one; the exporter is another user's, or this
 *                         process; or what it answers is not the name's handle
 *   EMM_E_NOT_OWNED       the export was released, or its exporter has ended
 *   EMM_E_BUSY            the exporter serves too many others just now: try again
 *   EMM_E_NOT_SUPPORTED   the exporter is in another network namespace */
EMM_API emm_status emm_ipc_name_to_handle(const emm_ipc_name *name, emm_ipc_handle *ret_handle);

/* Older names of these two. */
EMM_API emm_status emm_ipc_name_of(const emm_ipc_handle *handle, emm_ipc_name *ret_name);
EMM_API emm_status emm_ipc_handle_from(const emm_ipc_name *name, emm_ipc_handle *ret_handle);

/* --- streams ----------------------------------------------------------------------------------
 *
 * A registered stream costs less: the plugin need not ask each time whether the handle still names
 * the same stream, nor whether it captures. Register it once it exists; retire it before destroying
 * it; announce its captures. A stream that is handed to any call must exist: the driver crashes on
 * a handle of a destroyed stream. And it must be one of the call's context: EMM_E_INVALID_VALUE
 * answers others here and in emm_record_use, and in the calls that free from every plugin that
 * would not wait for such a stream; nothing has happened then. EMM_STREAM_UNORDERED is no stream,
 * and is refused here in the same way.
 */
EMM_API emm_status emm_stream_register(emm_context *context, emm_stream stream);
EMM_API emm_status emm_stream_retire(emm_context *context, emm_stream stream);

/*
 * Announces that `stream` is about to begin a capture or to join one, or that its capture has just
 * ended; also one that failed to begin: each announcement that succeeded has its end. While one is
 * announced, no plugin records an event on the context and unordered frees are held back. The
 * capture of an unregistered stream may go unannounced while no thread, in that context, allocates
 * pinned memory, allocates or frees unordered, frees what emm_record_use named, trims or retires
 * the context, and none runs out of memory of its device or of pinned memory: each may record an
 * event on the context, which makes CUDA invalidate the capture. All contexts may use portable
 * pinned memory: once some was freed unordered, allocations and unordered frees of pinned memory,
 * and trims, may do so in every context.
 */
EMM_API emm_status emm_capture_begin(emm_context *context, emm_stream stream);
EMM_API emm_status emm_capture_end(emm_context *context, emm_stream stream);

/* --- clean-up and pressure -------------------------------------------------------------------- */

/* A section in which nothing is returned to the driver, not even on out of memory. Sections nest,
 * for each context. Ending the outermost runs the pending frees if a limit is passed.
 *   EMM_E_INVALID_VALUE   end without begin */
EMM_API emm_status emm_defer_cleanup_begin(emm_context *context);
EMM_API emm_status emm_defer_cleanup_end(emm_context *context);

/*
 * The process's `callback` is asked on out of memory, by the thread that ran out, to free at least
 * `bytes` of the context's memory; it may call emm, and returns how much it freed. NULL removes it.
 */
typedef size_t (*emm_pressure_callback)(emm_context *context, size_t bytes, void *user_data);
EMM_API emm_status emm_set_pressure_callback(emm_pressure_callback callback, void *user_data);

typedef struct emm_pressure_callback_info {
    emm_pressure_callback callback; /* NULL: none */
    void *user_data;
} emm_pressure_callback_info;

/* The same, and tells which callback was there before: a callback that is to go on is handed in
 * again, or called by the new one. `ret_previous` may be NULL. */
EMM_API emm_status emm_exchange_pressure_callback(emm_pressure_callback callback, void *user_data,
                                                  emm_pressure_callback_info *ret_previous);

/* --- events ----------------------------------------------------------------------------------- */

/* The memory that an event is about. */
#define EMM_EVENT_DEVICE 1u
#define EMM_EVENT_HOST 2u /* pinned, by emm_memhostalloc */
#define EMM_EVENT_PIN 3u  /* the caller's own, by emm_mempin and emm_memunpin */
#define EMM_EVENT_MANAGED 4u

/* One allocation or free. Pointers are device addresses, or host addresses for EMM_EVENT_HOST and
 * EMM_EVENT_PIN, as is usual on the calls themselves. */
typedef struct emm_event {
    uint32_t struct_size; /* bytes that the library fills */
    uint32_t memory;      /* EMM_EVENT_* */
    emm_context *context;
    emm_deviceptr old_ptr; /* what was freed or unpinned; 0: this is an allocation */
    emm_deviceptr new_ptr; /* what was allocated or pinned; 0: this is a free, or it failed */
    uint64_t size;         /* as the caller gave it: 0 in a free says that it was not known */
    emm_stream stream;     /* EMM_STREAM_UNORDERED for calls that have none */
    emm_status status;     /* what the caller gets */
    uint32_t reserved;

    /* --- since 1.2 --- */

    const char *tag; /* the tags of the thread (emm_tag_begin), the outermost first, with '/'
                        between; NULL: none. Lives as long as the process */
} emm_event;

/* Is called after each allocation and free that is not of size or address 0, failed ones included,
 * by the thread that made the call and before it returns; from several threads at once. No lock is
 * held: it may call emm, and what it allocates and frees itself does not call it again. */
typedef void (*emm_event_hook)(const emm_event *event, void *user_data);

typedef struct emm_event_hook_info {
    emm_event_hook hook; /* NULL: none */
    void *user_data;
} emm_event_hook_info;

/* Sets the hook of the process; NULL: none, and events cost nothing. `ret_previous`, which may be
 * NULL, gets the one before with its user data: a hook that is to go on calls it with that. Calls
 * that other threads have begun may still reach the previous hook after this has returned. */
EMM_API emm_status emm_set_event_hook(emm_event_hook hook, void *user_data,
                                      emm_event_hook_info *ret_previous);

/*
 * Completes the event log `path` (EMM_EVENT_LOG) of a process that was killed or aborted: what is
 * in `path`.spool becomes rows, and the spool goes. Without a spool, the log is complete: EMM_OK.
 *   EMM_E_BUSY            a living process is writing it, be it this one
 *   EMM_E_INVALID_VALUE   spool or log is no regular file of this user, or damaged; both stay
 */
EMM_API emm_status emm_event_log_recover(const char *path);

/* --- tags -------------------------------------------------------------------------------------
 *
 * A name for what the calling thread does, such as "kv" or "prefill": what it allocates from
 * emm_tag_begin to emm_tag_end shows the name, in the event log, to the hook, among live
 * allocations, in reports and profiles. Tags are inside of each other, 16 at most; they are the
 * thread's own, and need neither driver nor context. `name` is copied; of more than 64 bytes its
 * middle is left out. Where nothing is recorded a call costs some nanoseconds. A process has room
 * for 65,536 different names, each counted with those around it: what is beyond is nameless, and
 * neither call fails for it. So do not put numbers of requests in names.
 *   EMM_E_INVALID_VALUE   (end) no tag has begun on this thread
 */
EMM_API emm_status emm_tag_begin(const char *name);
EMM_API emm_status emm_tag_end(void);

/* --- who holds memory --------------------------------------------------------------------------
 *
 * With EMM_TRACK=module or EMM_TRACK=stack in the environment, emm keeps a record of each live
 * allocation: which library and line of Python asked for it, with `stack` by which calls.
 * `:sample=1/N` behind either keeps one of N, chosen by chance. Without the variable this costs
 * nothing. Tracked are the raw calls and the handles that allocate; not what is only wrapped or
 * opened from another process.
 */

/* One call. Of a Python frame `function` is there, and `module` is its source file. */
typedef struct emm_frame {
    const char *module;   /* path of the program or library; NULL: code of no file */
    uint64_t offset;      /* of the return address in the file as it is mapped: addr2line takes it;
                             with no file, the address; 0 in Python */
    const char *function; /* of Python, qualified; NULL: this frame is not Python's */
    uint32_t line;        /* of Python; else 0 */
    uint32_t reserved;
} emm_frame;

/* What is known of a live allocation. Texts and frames live as long as the process. */
typedef struct emm_allocation {
    uint32_t struct_size; /* bytes that the library fills */
    uint32_t memory;      /* EMM_EVENT_*, as its events say */
    emm_deviceptr ptr;    /* host address for EMM_EVENT_HOST and EMM_EVENT_PIN */
    uint64_t size;        /* as asked for */
    emm_stream stream;    /* EMM_STREAM_UNORDERED for calls that have none */
    uint64_t age_ns;
    uint32_t thread;         /* that asked, as the kernel numbers it */
    uint32_t sample;         /* it stands for so many: N of EMM_TRACK, else 1 */
    const char *module;      /* the first on the stack that does not only pass calls on, as emm, the
                                CUDA runtime and libffi do; NULL: code of no file */
    uint64_t offset;         /* of the return address there */
    uint32_t frame_count;    /* with EMM_TRACK=module 1, the line of Python that asked, or 0 */
    uint32_t frame_size;     /* sizeof(emm_frame) of the library: from one to the next */
    const emm_frame *frames; /* from `module` outwards, 64 at most; then those of Python, 32 at
                                most, of CPython 3.9 to 3.13 */

    /* --- since 1.2 --- */

    const char *tag; /* as in emm_event, when it was allocated */
} emm_allocation;

/* A non-zero answer ends the walk. */
typedef int (*emm_allocation_visitor)(const emm_allocation *allocation, void *user_data);

/*
 * Calls `visit` for each allocation of the context that was live when this was called, in no
 * particular order. No lock is held: it may call emm, and other threads go on; what they free
 * meanwhile may still come, what they allocate does not. Whatever state the context is in.
 *   EMM_E_NOT_SUPPORTED   EMM_TRACK is not set
 */
EMM_API emm_status emm_foreach_allocation(emm_context *context, emm_allocation_visitor visit,
                                          void *user_data);

/*
 * Tells emm of `size` bytes of a device's memory that the caller has taken from the driver itself
 * (cuMemCreate, arrays), past any plugin, so that reports name who holds them: the caller, as
 * EMM_TRACK says. `emm run` tells of what it passes on. The id is for emm_untrack_driver_memory,
 * which forgets it; 0 is no id and always accepted.
 *   EMM_E_NOT_SUPPORTED   EMM_TRACK is not set; *ret_id is 0
 *   EMM_E_NOT_OWNED       (untrack) there is no such id
 */
EMM_API emm_status emm_track_driver_memory(int32_t device, uint64_t size, uint64_t *ret_id);
EMM_API emm_status emm_untrack_driver_memory(uint64_t id);

/* --- counters --------------------------------------------------------------------------------- */

/* What the host itself has counted since the process began. */
typedef struct emm_counters {
    uint32_t struct_size; /* in: sizeof(emm_counters) of the caller */
    uint32_t reserved;
    uint64_t late_frees;      /* after reset, shutdown, retirement or the driver's end */
    uint64_t pending_count;   /* entries in the queues of pending deallocations now */
    uint64_t pending_bytes;   /* and the bytes behind them */
    uint64_t flushes;         /* how often such a queue was emptied */
    uint64_t failed_deferred; /* pending frees that failed when they ran */
    uint64_t dropped;         /* pending frees dropped because their context had died */
    uint64_t memory_retries;  /* allocations tried again after running out of memory */
} emm_counters;

EMM_API emm_status emm_get_counters(emm_counters *ret_counters);

#ifdef __cplusplus
}
#endif

#endif

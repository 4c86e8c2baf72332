// libemm-bridge: emm behind functions whose signatures other projects have fixed. A caller names a
// device, and the record of that device's primary context serves it.
//
// PyTorch and CuPy take whatever address comes back. So the functions that allocate for them throw
// a std::runtime_error instead of giving NULL; RMM gets its own errors. Functions that free never
// throw: a free after emm_shutdown, after the driver's end or in a forked child is a success that
// does nothing.
#pragma once

#include <emm/emm.h>

#include <functional>
#include <sys/types.h>
#include <utility>

extern "C" {

// --- PyTorch: torch.cuda.memory.CUDAPluggableAllocator -------------------------------------------
//
// Memory is freed on the stream that it was allocated on, which must still exist: PyTorch's own
// streams live as long as the process, while those of torch.cuda.ExternalStream may end before.

EMM_API void *emm_torch_malloc(ssize_t size, int device, emm_stream stream);
EMM_API void emm_torch_free(void *ptr, size_t size, int device, emm_stream stream);

// set_record_stream_fn: the memory is used on `stream` too.
EMM_API void emm_torch_record_stream(void *ptr, emm_stream stream);

// set_begin_allocate_to_pool and set_end_allocate_to_pool_fn, which surround the capture of a
// graph. The memory of a capture needs no pool of PyTorch's: emm keeps it until the graph is gone.
using TorchPool = std::pair<unsigned long long, unsigned long long>;
using TorchFilter = std::function<bool(emm_stream)>;
EMM_API void emm_torch_begin_allocate_to_pool(int device, TorchPool pool, TorchFilter filter);
EMM_API void emm_torch_end_allocate_to_pool(int device, TorchPool pool);

// set_reset_fn: torch.cuda.empty_cache() returns cached memory to the driver, on every device.
EMM_API void emm_torch_empty_cache(void);

// The same two functions for the pool `name` of each device (emm_context_named, with `options`):
// the same ones for the same name, for at most 16 names.
using TorchMalloc = void *(*)(ssize_t size, int device, emm_stream stream);
using TorchFree = void (*)(void *ptr, size_t size, int device, emm_stream stream);
EMM_API emm_status emm_torch_pool(const char *name, const char *options, TorchMalloc *ret_malloc,
                                  TorchFree *ret_free);

// --- CuPy: cupy.cuda.CFunctionAllocator ----------------------------------------------------------
//
// No stream is passed here, so memory is EMM_STREAM_UNORDERED unless `param` says otherwise: any
// stream may use it at once, and it is given out again when all work is done that the context had
// at its free. `param` is the address 0 or a sum of these, the same for both functions.

#define EMM_CUPY_TESTED uintptr_t(1)  // the caller tests for NULL: nothing is thrown
#define EMM_CUPY_LEGACY uintptr_t(2)  // the memory belongs to the legacy default stream
#define EMM_CUPY_PINNED uintptr_t(4)  // pinned host memory, for all devices
#define EMM_CUPY_CURRENT uintptr_t(8) // as EMM_CUPY_LEGACY, if the legacy stream is current

// The function that tells the current stream, for EMM_CUPY_CURRENT: 0 for the default one. The
// allocating thread calls it within emm_cupy_malloc. CuPy's own function needs Python's lock, which
// CuPy has at that time. NULL, the initial value: no stream counts as the default one. Any thread
// may call; the last call holds.
EMM_API void emm_cupy_set_current_stream(intptr_t (*current_stream)(void));

EMM_API void *emm_cupy_malloc(void *param, size_t size, int device);
EMM_API void emm_cupy_free(void *param, void *ptr, int device);

// --- the interpreter -----------------------------------------------------------------------------

// Functions of the process's interpreter: PyCapsule_GetName, PyCapsule_GetPointer, PyErr_Fetch,
// PyErr_Restore, PyGILState_GetThisThreadState, PyThreadState_GetUnchecked (until 3.13
// _PyThreadState_UncheckedGet), PyEval_SaveThread and PyEval_RestoreThread.
struct PythonFunctions {
    const char *(*get_name)(void *capsule);
    void *(*get_pointer)(void *capsule, const char *name);
    void (*fetch_error)(void **type, void **value, void **traceback);
    void (*restore_error)(void *type, void *value, void *traceback);
    void *(*own_thread)();
    void *(*current_thread)();
    void *(*save_thread)();
    void (*restore_thread)(void *thread);
};

// Without them no function of this header lets the interpreter's lock go, and no capsule may end.
EMM_API void emm_python_set_functions(const PythonFunctions *functions);

// --- NumPy: PyDataMem_Handler, NEP 49 ------------------------------------------------------------

// As numpy/ndarraytypes.h has it since NumPy 1.22.
struct NumpyAllocator {
    void *ctx;
    void *(*malloc)(void *ctx, size_t size);
    void *(*calloc)(void *ctx, size_t count, size_t size);
    void *(*realloc)(void *ctx, void *ptr, size_t size);
    void (*free)(void *ctx, void *ptr, size_t size);
};
struct NumpyHandler {
    char name[127];
    uint8_t version;
    NumpyAllocator allocator;
};

// The handler that puts arrays into pinned memory, by the context of `device`. It lives as long as
// the process. NULL: that device cannot be served, and emm_last_error says why.
EMM_API NumpyHandler *emm_numpy_handler(int device);

// "mem_handler", the required name of the capsule around a handler, at an address that lasts.
EMM_API const char *emm_numpy_capsule_name(void);

// --- DLPack: capsules in Python ------------------------------------------------------------------

// The destructor of capsules named "dltensor" and "dltensor_versioned": it calls the deleter of a
// tensor that no consumer has taken. The interpreter calls it, with its lock held.
EMM_API void emm_dlpack_end_capsule(void *capsule);

// --- RMM: rmm::mr::callback_memory_resource ------------------------------------------------------

// Makes the callback_memory_resource at `resource` allocate from `context`: RMM's own constructor
// builds a new resource in its place. `library`, of dlopen, is librmm or a library that depends on
// it, and `major` and `minor` are RMM's version. Nothing may have been allocated from the resource
// yet, no copy of it may exist, and no other thread may use it during the call; afterwards any
// thread may. Its former content is not destroyed, and its new state lasts as long as the process.
//
// Memory is allocated and freed on the stream that RMM names, and aligned to 256 bytes. When device
// memory runs out, rmm::out_of_memory is thrown, at any other failure rmm::bad_alloc; both with the
// text of emm_last_error.
//   EMM_E_NOT_SUPPORTED     that RMM exports no such constructor; the resource is as it was
//   EMM_E_OUT_OF_HOST_MEMORY
//   what emm_context_get_info says of a context that it refuses, as in a forked child
EMM_API emm_status emm_rmm_serve(void *resource, emm_context *context, void *library, int major,
                                 int minor);

// The same with pinned host memory (emm_memhostalloc), which is freed on the stream that RMM names.
// When memory runs out, rmm::out_of_memory is thrown.
EMM_API emm_status emm_rmm_serve_pinned(void *resource, emm_context *context, void *library,
                                        int major, int minor);

} // extern "C"

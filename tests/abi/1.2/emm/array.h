/*
 * emm/array.h: the CUDA Array Interface for C. C99; compiles alone and needs no cuda.h.
 *
 * An emm_array describes an array on a device, in the words of Python's __cuda_array_interface__:
 * its address, shape, strides and element type, and the stream on which it is ready. Producer and
 * consumer need share nothing but this struct. emm exports its own memory from a handle, and makes
 * a handle of other libraries' memory.
 *
 * emm accepts versions 2 and 3, and refuses 0 and 1. The old versions leave open what an array
 * without strides means and which address an empty array has. So emm could not check such an array.
 * Besides, 0 is the value of a forgotten field. If the arrays of an old producer keep to the rules
 * of version 2 and have no mask, the producer may say 2.
 *
 * As in Python, the struct owns nothing: its producer says how long its pointers, the array's
 * memory and the stream live. For the results of functions see the top of emm/emm.h.
 */
#ifndef EMM_ARRAY_H
#define EMM_ARRAY_H

#include <emm/emm.h>

#ifdef __cplusplus
extern "C" {
#endif

#define EMM_ARRAY_MAX_DIMENSIONS 64u

/*
 * emm_array.stream, the interface's None: the data is ready, and no wait is needed. As in Python, 1
 * is the legacy default stream, and 2 the importing thread's own stream. emm refuses 0, because 0
 * could mean any of the three.
 */
#define EMM_ARRAY_NO_STREAM EMM_STREAM_UNORDERED
#define EMM_ARRAY_STREAM_LEGACY EMM_STREAM_OF(1)
#define EMM_ARRAY_STREAM_PER_THREAD EMM_STREAM_PER_THREAD

/*
 * One part of an element that has several parts; the interface's descr is an array of parts. A part
 * is a scalar (`typestr`) or has parts itself (`fields`), and may be repeated (`shape`). Parts nest
 * at most 16 deep. A descr has at most 65,536 parts in all; a part that is reached twice counts
 * twice.
 */
typedef struct emm_array_field {
    const char *name;    /* "" for padding; never NULL */
    const char *typestr; /* NULL if the part has `fields` */
    const struct emm_array_field *fields;
    uint32_t field_count;
    uint32_t ndim;        /* entries of `shape`; 0: the part comes once */
    const int64_t *shape; /* may be NULL if `ndim` is 0 */
} emm_array_field;

/* The layout is fixed for versions 2 and 3 of the interface. */
typedef struct emm_array {
    uint32_t struct_size;   /* sizeof(emm_array) where the struct was filled */
    uint32_t version;       /* 2 or 3 */
    emm_deviceptr data;     /* of the element whose indices are all 0; 0 if the array is empty */
    uint32_t read_only;     /* 0 or 1 */
    uint32_t ndim;          /* 0: a single element */
    const int64_t *shape;   /* `ndim` entries; may be NULL if `ndim` is 0 */
    const int64_t *strides; /* bytes from one element to the next, for each dimension; may be
                               negative; NULL: C-contiguous */
    const char *typestr;    /* as in NumPy: byte order (< > or | for neither), kind, bytes: "<f4".
                               Kinds b i u f c m M S U V, and t, whose number counts bits */
    const emm_array_field *descr; /* the parts of an element; NULL: `typestr` alone describes it */
    uint32_t descr_count;
    uint32_t reserved;            /* 0 */
    const struct emm_array *mask; /* marks the valid elements; NULL: all. Broadcast to `shape` */
    emm_stream stream; /* version 3: where the data is ready, or EMM_ARRAY_NO_STREAM; version 2 has
                          no stream: EMM_ARRAY_NO_STREAM or 0 */
} emm_array;

/*
 * Checks `array`, its descr and its mask against the interface's rules.
 *   EMM_E_INVALID_VALUE   a rule is broken; emm_last_error() says which, expected and found
 */
EMM_API emm_status emm_array_validate(const emm_array *array);

#define EMM_ARRAY_C_CONTIGUOUS 1u
#define EMM_ARRAY_F_CONTIGUOUS 2u

/* The figures that follow from an array's shape, strides and typestr. */
typedef struct emm_array_layout {
    uint32_t struct_size; /* in: sizeof(emm_array_layout) of the caller */
    uint32_t flags;       /* EMM_ARRAY_C_CONTIGUOUS, EMM_ARRAY_F_CONTIGUOUS */
    uint64_t itemsize;    /* bytes of one element */
    uint64_t count;       /* elements */
    uint64_t size;        /* bytes from the lowest byte to the highest, gaps included */
    uint64_t offset;      /* from the lowest byte to `data`: not 0 if a stride is negative */
} emm_array_layout;

/*
 * Validates `array` and measures it. `ret_strides`, which may be NULL, gets `ndim` strides in
 * bytes, even for a C-contiguous array.
 */
EMM_API emm_status emm_array_get_layout(const emm_array *array, emm_array_layout *ret_layout,
                                        int64_t *ret_strides);

/* --- to and from memory handles --------------------------------------------------------------- */

/* emm_array_import: emm orders nothing behind the array's stream; the caller does. */
#define EMM_ARRAY_NO_SYNC 1u

/*
 * Makes a handle of the memory of another library's array. The handle spans the bytes that the
 * array reaches, the layout's `size`. The element whose indices are all 0 lies `offset` bytes
 * behind the start. The handle has the device address that this context uses, and the host address
 * if there is one.
 *
 * `stream` is the stream that will use the data. Work put on `stream` after the call runs behind
 * the work that the array's stream holds now. With EMM_STREAM_UNORDERED the call waits for that
 * work instead. With EMM_ARRAY_NO_STREAM, and with version 2, which has no stream, there is nothing
 * to wait for.
 *
 * The array's memory and stream must be kept while they are used. With a `finalizer`, `owner` keeps
 * them: when the handle is given up, emm calls finalizer(owner), on any thread. Without a
 * finalizer, the caller keeps them. After a failure the owner is still the caller's.
 *
 * If the array has a mask, import the mask as an array too. `ret_layout` may be NULL.
 *   EMM_E_INVALID_VALUE   a rule is broken, or CUDA does not know `data` in this context
 *   EMM_E_CAPTURING       the array's stream captures, and the call would have to wait for the
 *                         stream
 *   EMM_E_DRIVER
 */
EMM_API emm_status emm_array_import(emm_context *context, const emm_array *array, emm_stream stream,
                                    uint32_t flags, void *owner, emm_finalizer finalizer,
                                    emm_memory **ret_memory, emm_array_layout *ret_layout);

/*
 * Completes an array that lies in `memory`. The element with the indices 0 lies `offset` bytes
 * behind the start. The caller has filled in version, ndim, shape, strides, typestr, read_only,
 * descr and mask. emm checks these members, checks that the array stays inside the memory, and
 * fills struct_size, data and stream. If the array is C-contiguous, strides becomes NULL. If the
 * memory is pinned with EMM_HOST_READ_ONLY, the array becomes read-only.
 *
 * `stream` is where the data is ready; EMM_STREAM_UNORDERED means that the data is ready now.
 * Version 3 passes the stream on. Version 2 cannot, so the call waits for the stream. emm does not
 * retain the handle: keep the handle and the stream while the array is used.
 *   EMM_E_INVALID_VALUE   a rule is broken, the array leaves the memory or has no device address
 *   EMM_E_ALREADY_FREED, EMM_E_NOT_OWNED   the memory was freed, or is inert after a reset
 *   EMM_E_CAPTURING, EMM_E_DRIVER   as emm_array_import
 */
EMM_API emm_status emm_array_export(emm_memory *memory, uint64_t offset, emm_stream stream,
                                    emm_array *array);

/* --- DLPack -----------------------------------------------------------------------------------
 *
 * A tensor in `memory` for libraries that speak DLPack 1. To look inside the tensor, include
 * dlpack/dlpack.h, before or after this header. `array` gives version, ndim, shape, strides,
 * typestr and read_only; `offset` gives the place, as above. emm ignores the array's data and
 * stream: the caller orders the consumer's work behind the producer's. The tensor keeps the memory
 * alive until its deleter is called, on any thread. The data pointer is that of the element with
 * the indices 0, and byte_offset is 0, as many consumers expect.
 *
 * The device is kDLCUDA, kDLCUDAHost (pinned and mapped memory) or kDLCUDAManaged; for external
 * memory, the driver says which. `type` is for elements that no typestr can name, such as bfloat16,
 * and NULL otherwise.
 *   EMM_E_INVALID_VALUE   as above; a mask or a descr; strides that are not whole elements
 *   EMM_E_NOT_SUPPORTED   DLPack has no such type: other byte order, text, times, records
 *   EMM_E_ALREADY_FREED, EMM_E_NOT_OWNED   the memory was freed, or is inert after a reset
 */
struct DLManagedTensor;
struct DLManagedTensorVersioned;

typedef struct emm_dlpack_type {
    uint8_t code;   /* DLDataTypeCode */
    uint8_t bits;   /* of one lane */
    uint16_t lanes; /* bits * lanes is the size of the typestr in bits */
} emm_dlpack_type;

EMM_API emm_status emm_dlpack_export(emm_memory *memory, uint64_t offset, const emm_array *array,
                                     const emm_dlpack_type *type,
                                     struct DLManagedTensorVersioned **ret_tensor);

/* The struct from before DLPack 1. It cannot mark data as read-only, so emm refuses such data. */
EMM_API emm_status emm_dlpack_export_unversioned(emm_memory *memory, uint64_t offset,
                                                 const emm_array *array,
                                                 const emm_dlpack_type *type,
                                                 struct DLManagedTensor **ret_tensor);

#ifdef __cplusplus
}
#endif

#endif

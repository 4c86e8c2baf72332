/*
 * emm/array.h: the CUDA Array Interface for C. C99; compiles alone and needs no cuda.h.
 *
 * An emm_array says what __cuda_array_interface__ says in Python, in the same words: where an array
 * lies on a device, its shape, strides and element type, and on which stream it is ready. Producer
 * and consumer need share nothing but this struct; memory that emm allocated is exported from its
 * handle, memory of others becomes a handle.
 *
 * Versions 2 and 3 are spoken, 0 and 1 refused: these leave open what an array without strides
 * means and which address an empty one has, so there is nothing to check an array of theirs by, and
 * 0 is also what a forgotten field says. A producer of theirs whose arrays keep to the rules of
 * version 2, no mask included, may say 2.
 *
 * As in Python, the struct owns nothing: what it points to, the array's memory and the stream in it
 * live as long as their producer says. What the functions return is said at the top of emm/emm.h.
 */
#ifndef EMM_ARRAY_H
#define EMM_ARRAY_H

#include <emm/emm.h>

#ifdef __cplusplus
extern "C" {
#endif

#define EMM_ARRAY_MAX_DIMENSIONS 64u

/*
 * emm_array.stream, the interface's None: the data is ready, nothing needs to be waited for. As in
 * Python 1 is the legacy default stream, 2 the importing thread's own one, and 0 is refused, since
 * it could be meant as any of the three.
 */
#define EMM_ARRAY_NO_STREAM EMM_STREAM_UNORDERED
#define EMM_ARRAY_STREAM_LEGACY EMM_STREAM_OF(1)
#define EMM_ARRAY_STREAM_PER_THREAD EMM_STREAM_PER_THREAD

/*
 * One part of an element that has several; the interface's descr, an array of these. A part is a
 * scalar (`typestr`) or has parts itself (`fields`), and may be repeated (`shape`). Parts lie at
 * most 16 deep, and a descr has at most 65,536 in all; one that is reached twice counts twice.
 */
typedef struct emm_array_field {
    const char *name;    /* "" for padding; never NULL */
    const char *typestr; /* NULL if `fields` says it */
    const struct emm_array_field *fields;
    uint32_t field_count;
    uint32_t ndim;        /* entries of `shape`; 0: it comes once */
    const int64_t *shape; /* may be NULL if `ndim` is 0 */
} emm_array_field;

/* The layout is fixed for versions 2 and 3 of the interface. */
typedef struct emm_array {
    uint32_t struct_size;   /* sizeof(emm_array) where it was filled */
    uint32_t version;       /* 2 or 3 */
    emm_deviceptr data;     /* of the element whose indices are all 0; 0 if the array is empty */
    uint32_t read_only;     /* 0 or 1 */
    uint32_t ndim;          /* 0: a single element */
    const int64_t *shape;   /* `ndim` entries; may be NULL if `ndim` is 0 */
    const int64_t *strides; /* bytes from one element to the next, for each dimension, negative ones
                               too; NULL: C-contiguous */
    const char *typestr;    /* byte order (< > or | for neither), kind, bytes: "<f4". As in NumPy;
                               kinds b i u f c m M S U V, and t whose number counts bits */
    const emm_array_field *descr; /* the parts of an element; NULL: `typestr` says it all */
    uint32_t descr_count;
    uint32_t reserved;            /* 0 */
    const struct emm_array *mask; /* which elements are valid; NULL: all. Broadcast to `shape` */
    emm_stream stream; /* version 3: where the data is ready, or EMM_ARRAY_NO_STREAM; version 2 has
                          none: EMM_ARRAY_NO_STREAM or 0 */
} emm_array;

/*
 * Checks `array`, its descr and its mask against the interface's rules.
 *   EMM_E_INVALID_VALUE   a rule is broken; emm_last_error() says which, expected and found
 */
EMM_API emm_status emm_array_validate(const emm_array *array);

#define EMM_ARRAY_C_CONTIGUOUS 1u
#define EMM_ARRAY_F_CONTIGUOUS 2u

/* What follows from an array's shape, strides and typestr. */
typedef struct emm_array_layout {
    uint32_t struct_size; /* in: sizeof(emm_array_layout) of the caller */
    uint32_t flags;       /* EMM_ARRAY_C_CONTIGUOUS, EMM_ARRAY_F_CONTIGUOUS */
    uint64_t itemsize;    /* bytes of one element */
    uint64_t count;       /* elements */
    uint64_t size;        /* bytes from the lowest one to the highest one, gaps included */
    uint64_t offset;      /* from the lowest byte to `data`: not 0 if a stride is negative */
} emm_array_layout;

/*
 * Validates `array` and measures it. `ret_strides`, which may be NULL, gets `ndim` strides in
 * bytes, those of a C-contiguous array too.
 */
EMM_API emm_status emm_array_get_layout(const emm_array *array, emm_array_layout *ret_layout,
                                        int64_t *ret_strides);

/* --- to and from memory handles --------------------------------------------------------------- */

/* emm_array_import: nothing is ordered behind the array's stream; the caller sees to that. */
#define EMM_ARRAY_NO_SYNC 1u

/*
 * Makes a handle of the memory that the array of another library lies in. It spans the bytes that
 * the array reaches, the layout's `size`, and the element whose indices are all 0 lies `offset`
 * behind its start. It has the device address that this context uses, and the host's if there is
 * one.
 *
 * `stream` is where the data will be used. What is put there after the call runs behind what the
 * array's stream holds now; with EMM_STREAM_UNORDERED the call waits for that instead. Version 2
 * has no stream: then, and with EMM_ARRAY_NO_STREAM, there is nothing to wait for.
 *
 * The memory and the array's stream must be kept while they are used. With a
 * `finalizer` the handle sees to it: it calls finalizer(owner) when it is given up, on any thread.
 * Without one the caller does. On failure the owner is still the caller's.
 *
 * The array's mask, if any, is an array too: import it in its turn. `ret_layout` may be NULL.
 *   EMM_E_INVALID_VALUE   a rule is broken, or CUDA knows nothing of `data` in this context
 *   EMM_E_CAPTURING       the array's stream captures, and the call would have to wait for it
 *   EMM_E_DRIVER
 */
EMM_API emm_status emm_array_import(emm_context *context, const emm_array *array, emm_stream stream,
                                    uint32_t flags, void *owner, emm_finalizer finalizer,
                                    emm_memory **ret_memory, emm_array_layout *ret_layout);

/*
 * Completes an array that lies in `memory`, its element with the indices 0 `offset` bytes behind
 * the start. The caller has filled in version, ndim, shape, strides, typestr, read_only, descr and
 * mask; this checks them, sees that they stay inside the memory, and fills struct_size, data and
 * stream. Strides become NULL if the array is C-contiguous; memory pinned EMM_HOST_READ_ONLY makes
 * the array read-only.
 *
 * `stream` is where the data is ready, EMM_STREAM_UNORDERED if it is ready now. Version 3 hands it
 * on; version 2 cannot, so the call waits for it. The handle is not retained: keep it, as its
 * stream, while the array is used.
 *   EMM_E_INVALID_VALUE   a rule is broken, the array leaves the memory or has no device address
 *   EMM_E_ALREADY_FREED, EMM_E_NOT_OWNED   the memory was freed, or is inert after a reset
 *   EMM_E_CAPTURING, EMM_E_DRIVER   as emm_array_import
 */
EMM_API emm_status emm_array_export(emm_memory *memory, uint64_t offset, emm_stream stream,
                                    emm_array *array);

/* --- DLPack -----------------------------------------------------------------------------------
 *
 * A tensor in `memory` for libraries that speak DLPack 1. To look inside it, include
 * dlpack/dlpack.h, before this header or after it. `array` says version, ndim, shape, strides,
 * typestr and read_only, `offset` where, as above; its data and stream are not looked at: the
 * caller orders the consumer's work behind the producer's. The tensor keeps the memory alive until
 * its deleter is called, on any thread. Its data pointer is that of the element with the indices 0
 * and its byte_offset is 0, as many consumers expect.
 *
 * The device is kDLCUDA, kDLCUDAHost (pinned and mapped memory) or kDLCUDAManaged; for external
 * memory it is what the driver says. `type` is for elements that no typestr can name, such as
 * bfloat16, and NULL otherwise.
 *   EMM_E_INVALID_VALUE   as above; a mask or a descr; strides that are no whole elements
 *   EMM_E_NOT_SUPPORTED   DLPack has no such type: other byte order, text, times, records
 *   EMM_E_ALREADY_FREED, EMM_E_NOT_OWNED   the memory was freed, or is inert after a reset
 */
struct DLManagedTensor;
struct DLManagedTensorVersioned;

typedef struct emm_dlpack_type {
    uint8_t code;   /* DLDataTypeCode */
    uint8_t bits;   /* of one lane */
    uint16_t lanes; /* bits * lanes are as many as the typestr's */
} emm_dlpack_type;

EMM_API emm_status emm_dlpack_export(emm_memory *memory, uint64_t offset, const emm_array *array,
                                     const emm_dlpack_type *type,
                                     struct DLManagedTensorVersioned **ret_tensor);

/* The struct from before DLPack 1, which cannot say that data is read-only: that is refused. */
EMM_API emm_status emm_dlpack_export_unversioned(emm_memory *memory, uint64_t offset,
                                                 const emm_array *array,
                                                 const emm_dlpack_type *type,
                                                 struct DLManagedTensor **ret_tensor);

#ifdef __cplusplus
}
#endif

#endif

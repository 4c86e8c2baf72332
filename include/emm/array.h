/*
 * emm/array.h: the CUDA Array Interface for C. C99; compiles alone and needs no cuda.h.
 *
 * An emm_array says what __cuda_array_interface__ says in Python, in the same words: where an array
 * lies on a device, its shape, strides and element type, and on which stream it is ready. Versions
 * 2 and 3 are spoken. Producer and consumer need share nothing but this struct; memory that emm
 * allocated is exported from its handle, memory of others becomes a handle.
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
#define EMM_ARRAY_STREAM_LEGACY ((emm_stream)(uintptr_t)1)
#define EMM_ARRAY_STREAM_PER_THREAD EMM_STREAM_PER_THREAD

/*
 * One part of an element that has several; the interface's descr, an array of these. A part is a
 * scalar (`typestr`) or has parts itself (`fields`), and may be repeated (`shape`).
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
    uint32_t struct_size;   /* sizeof(emm_array) of whoever filled it */
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

#ifdef __cplusplus
}
#endif

#endif

/* Behaviour: DLPack tensors, read as their consumers do: by the layout of DLPack 1. */
#include "check.h"
#include "gpu.h"

#include <stddef.h>

typedef struct {
    void *data;
    int32_t device_type, device_id, ndim;
    uint8_t code, bits;
    uint16_t lanes;
    int64_t *shape, *strides;
    uint64_t byte_offset;
} tensor;

struct DLManagedTensorVersioned {
    uint32_t major, minor;
    void *manager_ctx;
    void (*deleter)(struct DLManagedTensorVersioned *);
    uint64_t flags;
    tensor dl_tensor;
};

struct DLManagedTensor {
    tensor dl_tensor;
    void *manager_ctx;
    void (*deleter)(struct DLManagedTensor *);
};

enum { dl_cuda = 2, dl_cuda_host = 3, dl_cuda_managed = 13 };

static const int64_t four_by_eight[] = {4, 8};

static emm_array typed(const char *typestr) {
    emm_array array;
    memset(&array, 0, sizeof array);
    array.struct_size = sizeof array;
    array.version = 3;
    array.ndim = 2;
    array.shape = four_by_eight;
    array.typestr = typestr;
    return array;
}

static struct DLManagedTensorVersioned *
shared(emm_memory *memory, uint64_t offset, const emm_array *array, const emm_dlpack_type *type) {
    struct DLManagedTensorVersioned *made = NULL;
    CHECK(emm_dlpack_export(memory, offset, array, type, &made) == EMM_OK);
    return made;
}

static int device_type_of(emm_memory *memory) {
    const emm_array array = typed("<f4");
    struct DLManagedTensorVersioned *made = shared(memory, 0, &array, NULL);
    const int type = made->dl_tensor.device_type;
    CHECK(made->dl_tensor.device_id == 0);
    made->deleter(made);
    emm_memory_release(memory);
    return type;
}

static void described(void) {
    static const int64_t strides[] = {64, 8};
    emm_memory *memory = device_memory(512);
    emm_array array = typed("<f4");
    array.strides = strides;
    struct DLManagedTensorVersioned *made = shared(memory, 16, &array, NULL);
    const tensor *t = &made->dl_tensor;
    CHECK(made->major == 1 && made->flags == 0);
    CHECK((uintptr_t)t->data == info_of(memory).ptr + 16 && t->byte_offset == 0);
    CHECK(t->ndim == 2 && t->shape[0] == 4 && t->shape[1] == 8);
    CHECK(t->strides[0] == 16 && t->strides[1] == 2);
    CHECK(t->code == 2 && t->bits == 32 && t->lanes == 1);
    made->deleter(made);
    array.strides = NULL;
    made = shared(memory, 0, &array, NULL);
    CHECK(made->dl_tensor.strides[0] == 8 && made->dl_tensor.strides[1] == 1);
    made->deleter(made);
    emm_memory_release(memory);
}

static void count_finalized(void *owner) {
    ++*(int *)owner;
}

static void deleters(void) {
    emm_memory *producer = device_memory(128), *memory = NULL;
    const emm_array array = typed("<f4");
    int finalized = 0;
    CHECK(emm_memory_wrap(gpu(), info_of(producer).ptr, NULL, 128, &finalized, count_finalized,
                          &memory) == EMM_OK);
    struct DLManagedTensorVersioned *one = shared(memory, 0, &array, NULL);
    struct DLManagedTensor *other = NULL;
    CHECK(emm_dlpack_export_unversioned(memory, 0, &array, NULL, &other) == EMM_OK);
    CHECK(other->dl_tensor.data == one->dl_tensor.data);
    emm_memory_release(memory);
    one->deleter(one);
    CHECK(finalized == 0);
    other->deleter(other);
    CHECK(finalized == 1);
    emm_memory_release(producer);
}

static void devices(void) {
    emm_memory *managed = NULL;
    CHECK(device_type_of(device_memory(128)) == dl_cuda);
    CHECK(device_type_of(host_memory(128, 0)) == dl_cuda_host);
    CHECK(device_type_of(host_memory(128, EMM_HOST_MAPPED)) == dl_cuda_host);
    CHECK(emm_memory_managed(gpu(), 128, EMM_ATTACH_GLOBAL, &managed) == EMM_OK);
    CHECK(device_type_of(managed) == dl_cuda_managed);
}

static void external_devices(void) {
    emm_memory *pinned = host_memory(128, EMM_HOST_MAPPED), *managed = NULL, *wrapped = NULL;
    CHECK(emm_memory_managed(gpu(), 128, EMM_ATTACH_GLOBAL, &managed) == EMM_OK);
    CHECK(emm_memory_wrap(gpu(), info_of(pinned).ptr, info_of(pinned).host, 128, NULL, NULL,
                          &wrapped) == EMM_OK);
    CHECK(device_type_of(wrapped) == dl_cuda_host);
    CHECK(emm_memory_wrap(gpu(), info_of(managed).ptr, NULL, 128, NULL, NULL, &wrapped) == EMM_OK);
    CHECK(device_type_of(wrapped) == dl_cuda_managed);
    emm_memory_release(pinned);
    emm_memory_release(managed);
}

static void types(void) {
    static const struct {
        const char *typestr;
        uint8_t code, bits;
    } known[] = {{"|b1", 6, 8},  {"<i8", 0, 64}, {"|i1", 0, 8},  {"<u2", 1, 16},
                 {"<f2", 2, 16}, {"<f8", 2, 64}, {"<c8", 5, 64}, {"<c16", 5, 128}};
    static const char *const unknown[] = {">f4", ">i2", "<U1", "<M8", "|V4", "<f16", "|S4"};
    const emm_dlpack_type bfloat16 = {4, 16, 1}, too_wide = {4, 16, 2};
    emm_memory *memory = device_memory(1024);
    struct DLManagedTensorVersioned *made = NULL;
    for (size_t i = 0; i < sizeof known / sizeof *known; i++) {
        const emm_array array = typed(known[i].typestr);
        made = shared(memory, 0, &array, NULL);
        CHECK(made->dl_tensor.code == known[i].code && made->dl_tensor.bits == known[i].bits);
        made->deleter(made);
    }
    for (size_t i = 0; i < sizeof unknown / sizeof *unknown; i++) {
        const emm_array array = typed(unknown[i]);
        CHECK_REFUSED(emm_dlpack_export(memory, 0, &array, NULL, &made), EMM_E_NOT_SUPPORTED,
                      "expected a number of this machine's byte order");
    }
    const emm_array opaque = typed("|V2");
    made = shared(memory, 0, &opaque, &bfloat16);
    CHECK(made->dl_tensor.code == 4 && made->dl_tensor.bits == 16);
    made->deleter(made);
    CHECK_REFUSED(emm_dlpack_export(memory, 0, &opaque, &too_wide, &made), EMM_E_INVALID_VALUE,
                  "expected the 2 bytes of typestr, found 2 lanes of 16 bits");
    emm_memory_release(memory);
}

static void read_only(void) {
    emm_memory *memory = device_memory(128);
    emm_array array = typed("<f4");
    array.read_only = 1;
    struct DLManagedTensorVersioned *made = shared(memory, 0, &array, NULL);
    struct DLManagedTensor *refused = NULL;
    CHECK(made->flags == 1);
    made->deleter(made);
    CHECK_REFUSED(emm_dlpack_export_unversioned(memory, 0, &array, NULL, &refused),
                  EMM_E_INVALID_VALUE, "which only the versioned struct can express");
    CHECK(refused == NULL);
    emm_memory_release(memory);
}

static void inexpressible(void) {
    static const int64_t odd[] = {34, 4}, empty[] = {0, 8};
    emm_memory *memory = device_memory(256);
    struct DLManagedTensorVersioned *made = NULL;
    emm_array array = typed("<f4"), mask = typed("|b1");
    array.strides = odd;
    CHECK_REFUSED(emm_dlpack_export(memory, 0, &array, NULL, &made), EMM_E_INVALID_VALUE,
                  "strides: expected multiples of the 4 bytes of an element, found 34");
    array.strides = NULL;
    array.mask = &mask;
    CHECK_REFUSED(emm_dlpack_export(memory, 0, &array, NULL, &made), EMM_E_INVALID_VALUE,
                  "the array's mask");
    array.mask = NULL;
    CHECK_REFUSED(emm_dlpack_export(memory, 132, &array, NULL, &made), EMM_E_INVALID_VALUE,
                  "and the memory has");
    CHECK(made == NULL);
    array.shape = empty;
    made = shared(memory, 0, &array, NULL);
    CHECK(made->dl_tensor.data == NULL);
    made->deleter(made);
    emm_memory_release(memory);
}

const test dlpack_tests[] = {
    {"a tensor counts strides in elements and begins at its first one", described},
    {"memory lives until the last tensor's deleter is called", deleters},
    {"the device is that of the memory's kind", devices},
    {"the device of external memory is what the driver says", external_devices},
    {"numbers have a DLPack type, other elements only if it is named", types},
    {"only the versioned struct says that data is read-only", read_only},
    {"what DLPack cannot express is refused, and nothing at all has no address", inexpressible},
    {NULL, NULL}};

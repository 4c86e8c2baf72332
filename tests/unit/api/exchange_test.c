/* Behaviour: arrays from others and to others: memory, lifetimes and streams. */
#include "check.h"
#include "gpu.h"

#include <unistd.h>

static const int64_t four_by_eight[] = {4, 8};

/* 128 bytes. */
static emm_array floats(emm_deviceptr data) {
    emm_array array;
    memset(&array, 0, sizeof array);
    array.struct_size = sizeof array;
    array.version = 3;
    array.data = data;
    array.ndim = 2;
    array.shape = four_by_eight;
    array.typestr = "<f4";
    array.stream = EMM_ARRAY_NO_STREAM;
    return array;
}

static void count_finalized(void *owner) {
    ++*(int *)owner;
}

static emm_memory *imported(const emm_array *array, emm_stream stream, uint32_t flags) {
    emm_memory *memory = NULL;
    CHECK(emm_array_import(gpu(), array, stream, flags, NULL, NULL, &memory, NULL) == EMM_OK);
    return memory;
}

static void owner_kept(void) {
    emm_memory *producer = device_memory(128), *memory = NULL, *view = NULL;
    const emm_array array = floats(info_of(producer).ptr);
    int finalized = 0;
    CHECK(emm_array_import(gpu(), &array, EMM_STREAM_UNORDERED, 0, &finalized, count_finalized,
                           &memory, NULL) == EMM_OK);
    CHECK(info_of(memory).kind == EMM_KIND_EXTERNAL);
    CHECK(info_of(memory).ptr == array.data && info_of(memory).size == 128);
    CHECK(info_of(memory).owner == &finalized);
    CHECK(emm_memory_view(memory, 32, 64, &view) == EMM_OK);
    CHECK(emm_memory_release(memory) == EMM_OK && finalized == 0);
    CHECK(emm_memory_release(view) == EMM_OK && finalized == 1);
    CHECK(emm_memory_release(producer) == EMM_OK);
}

static void caller_keeps(void) {
    emm_memory *producer = device_memory(128);
    const emm_array array = floats(info_of(producer).ptr);
    emm_memory *memory = imported(&array, EMM_STREAM_UNORDERED, 0);
    CHECK(info_of(memory).owner == NULL);
    CHECK(emm_memory_release(memory) == EMM_OK);
    CHECK(info_of(producer).state == EMM_MEMORY_LIVE);
    CHECK(emm_memory_release(producer) == EMM_OK);
}

static void refused_owner(void) {
    int finalized = 0;
    emm_memory *memory = NULL;
    emm_array array = floats(0);
    CHECK_REFUSED(emm_array_import(gpu(), &array, EMM_STREAM_UNORDERED, 0, &finalized,
                                   count_finalized, &memory, NULL),
                  EMM_E_INVALID_VALUE, "data: expected the address of 128 bytes, found 0");
    array.data = 0x1000;
    CHECK_REFUSED(emm_array_import(gpu(), &array, EMM_STREAM_UNORDERED, 0, &finalized,
                                   count_finalized, &memory, NULL),
                  EMM_E_INVALID_VALUE, "CUDA does not know this memory");
    CHECK_REFUSED(emm_array_import(gpu(), &array, EMM_STREAM_UNORDERED, 2, &finalized,
                                   count_finalized, &memory, NULL),
                  EMM_E_INVALID_VALUE, "expected 0 or EMM_ARRAY_NO_SYNC, found 2");
    CHECK(finalized == 0 && memory == NULL);
}

static void extents(void) {
    static const int64_t strides[] = {-32, 4};
    emm_memory *producer = device_memory(256), *memory = NULL;
    emm_array array = floats(info_of(producer).ptr + 128 - 32);
    emm_array_layout layout;
    memset(&layout, 0, sizeof layout);
    layout.struct_size = sizeof layout;
    array.strides = strides;
    CHECK(emm_array_import(gpu(), &array, EMM_STREAM_UNORDERED, 0, NULL, NULL, &memory, &layout) ==
          EMM_OK);
    CHECK(layout.size == 128 && layout.offset == 96);
    CHECK(info_of(memory).ptr == info_of(producer).ptr && info_of(memory).size == 128);
    emm_memory_release(memory);
    emm_memory_release(producer);
}

static void empty_import(void) {
    static const int64_t empty[] = {4, 0};
    emm_array array = floats(0);
    array.shape = empty;
    emm_memory *memory = imported(&array, EMM_STREAM_UNORDERED, 0);
    CHECK(info_of(memory).ptr == 0 && info_of(memory).size == 0);
    CHECK(emm_memory_release(memory) == EMM_OK);
}

static void host_address(void) {
    emm_memory *pinned = host_memory(128, EMM_HOST_MAPPED), *device = device_memory(128);
    const emm_array on_host = floats(info_of(pinned).ptr), on_device = floats(info_of(device).ptr);
    emm_memory *one = imported(&on_host, EMM_STREAM_UNORDERED, 0);
    emm_memory *other = imported(&on_device, EMM_STREAM_UNORDERED, 0);
    CHECK(info_of(one).host == info_of(pinned).host);
    CHECK(info_of(other).host == NULL);
    emm_memory_release(one);
    emm_memory_release(other);
    emm_memory_release(pinned);
    emm_memory_release(device);
}

/* A producer's work, which takes a while, and a consumer's, which reads the result. */
static int produced, consumed;
static void produce(void *unused) {
    (void)unused;
    usleep(2000);
    produced = 1;
}
static void consume(void *unused) {
    (void)unused;
    consumed = produced;
}

static void ordered_on_stream(void) {
    const CUstream producer = new_stream(CU_STREAM_NON_BLOCKING),
                   consumer = new_stream(CU_STREAM_NON_BLOCKING);
    emm_memory *memory = device_memory(128);
    emm_array array = floats(info_of(memory).ptr);
    array.stream = producer;
    produced = consumed = 0;
    enqueue(producer, produce, NULL);
    emm_memory *taken = imported(&array, consumer, 0);
    enqueue(consumer, consume, NULL);
    wait_for(consumer);
    CHECK(consumed == 1);
    emm_memory_release(taken);
    wait_for(producer);
    emm_memory_release(memory);
}

static void waited_for(void) {
    const CUstream producer = new_stream(CU_STREAM_NON_BLOCKING);
    emm_memory *memory = device_memory(128);
    emm_array array = floats(info_of(memory).ptr);
    array.stream = producer;
    produced = 0;
    enqueue(producer, produce, NULL);
    emm_memory *taken = imported(&array, EMM_STREAM_UNORDERED, 0);
    CHECK(produced == 1);
    emm_memory_release(taken);
    emm_memory_release(memory);
}

static void nothing_to_wait_for(void) {
    const CUstream stream = new_stream(CU_STREAM_NON_BLOCKING);
    emm_memory *memory = device_memory(128);
    emm_array array = floats(info_of(memory).ptr);
    const uint64_t before =
        calls_of("cuStreamSynchronize") + calls_of("cuEventRecord") + calls_of("cuStreamWaitEvent");
    emm_memory_release(imported(&array, stream, 0));
    array.version = 2;
    emm_memory_release(imported(&array, EMM_STREAM_UNORDERED, 0));
    array.version = 3;
    array.stream = stream;
    emm_memory_release(imported(&array, EMM_STREAM_UNORDERED, EMM_ARRAY_NO_SYNC));
    emm_memory_release(imported(&array, stream, 0));
    CHECK(calls_of("cuStreamSynchronize") + calls_of("cuEventRecord") +
              calls_of("cuStreamWaitEvent") ==
          before);
    emm_memory_release(memory);
}

/* Tries to wait for `waited_for` while `captured` captures; the capture must survive. */
static void try_during_capture(CUstream captured, emm_stream waited_for) {
    typedef CUresult(CUDAAPI * begin)(CUstream, CUstreamCaptureMode);
    typedef CUresult(CUDAAPI * end)(CUstream, CUgraph *);
    typedef CUresult(CUDAAPI * destroy)(CUgraph);
    CUgraph graph = NULL;
    emm_memory *memory = device_memory(128), *taken = NULL;
    emm_array array = floats(info_of(memory).ptr);
    array.stream = waited_for;
    CHECK(CU(begin, "cuStreamBeginCapture")(captured, CU_STREAM_CAPTURE_MODE_RELAXED) ==
          CUDA_SUCCESS);
    CHECK(emm_array_import(gpu(), &array, EMM_STREAM_UNORDERED, 0, NULL, NULL, &taken, NULL) ==
          EMM_E_CAPTURING);
    CHECK(CU(end, "cuStreamEndCapture")(captured, &graph) == CUDA_SUCCESS);
    CHECK(CU(destroy, "cuGraphDestroy")(graph) == CUDA_SUCCESS);
    emm_memory_release(memory);
}

static void capturing_producer(void) {
    const CUstream stream = new_stream(CU_STREAM_NON_BLOCKING);
    try_during_capture(stream, stream);
    /* The legacy stream waits for blocking ones. */
    try_during_capture(new_stream(CU_STREAM_DEFAULT), EMM_ARRAY_STREAM_LEGACY);
}

static void exported(void) {
    static const int64_t same_as_none[] = {32, 4};
    emm_memory *memory = device_memory(256);
    emm_array array = floats(0);
    array.struct_size = 0;
    array.strides = same_as_none;
    CHECK(emm_array_export(memory, 64, EMM_STREAM_UNORDERED, &array) == EMM_OK);
    CHECK(array.data == info_of(memory).ptr + 64);
    CHECK(array.strides == NULL && array.version == 3 && array.read_only == 0);
    CHECK(array.stream == EMM_ARRAY_NO_STREAM);
    CHECK(emm_array_validate(&array) == EMM_OK);
    CHECK(emm_array_export(memory, 128, EMM_STREAM_LEGACY, &array) == EMM_OK);
    CHECK(array.stream == EMM_ARRAY_STREAM_LEGACY);
    emm_memory_release(memory);
}

static void exported_in_version_2(void) {
    const CUstream producer = new_stream(CU_STREAM_NON_BLOCKING);
    emm_memory *memory = device_memory(128);
    emm_array array = floats(0);
    array.version = 2;
    produced = 0;
    enqueue(producer, produce, NULL);
    CHECK(emm_array_export(memory, 0, producer, &array) == EMM_OK);
    CHECK(produced == 1);
    CHECK(array.version == 2 && array.stream == EMM_ARRAY_NO_STREAM);
    emm_memory_release(memory);
}

static void exports_that_leave_the_memory(void) {
    static const int64_t backwards[] = {-32, 4};
    emm_memory *memory = device_memory(128);
    emm_array array = floats(7);
    CHECK_REFUSED(emm_array_export(memory, 4, EMM_STREAM_UNORDERED, &array), EMM_E_INVALID_VALUE,
                  "and the memory has 128 bytes");
    CHECK_REFUSED(emm_array_export(memory, UINT64_MAX, EMM_STREAM_UNORDERED, &array),
                  EMM_E_INVALID_VALUE, "and the memory has");
    array.strides = backwards;
    CHECK_REFUSED(emm_array_export(memory, 32, EMM_STREAM_UNORDERED, &array), EMM_E_INVALID_VALUE,
                  "96 of them before offset 32");
    CHECK(array.data == 7);
    CHECK(emm_array_export(memory, 96, EMM_STREAM_UNORDERED, &array) == EMM_OK);
    CHECK(array.strides == backwards);
    emm_memory_release(memory);
}

static void exports_of_host_memory(void) {
    static float values[64];
    emm_memory *plain = host_memory(128, 0), *read_only = NULL;
    emm_array array = floats(0);
    CHECK_REFUSED(emm_array_export(plain, 0, EMM_STREAM_UNORDERED, &array), EMM_E_INVALID_VALUE,
                  "no device address");
    emm_memory_release(plain);
    const emm_status pinned = emm_memory_pin(
        gpu(), values, sizeof values, EMM_HOST_MAPPED | EMM_HOST_READ_ONLY, NULL, NULL, &read_only);
    if (pinned == EMM_OK) { /* not every device can pin memory read-only */
        CHECK(emm_array_export(read_only, 0, EMM_STREAM_UNORDERED, &array) == EMM_OK);
        CHECK(array.read_only == 1);
        emm_memory_release(read_only);
    }
}

static void empty_exports(void) {
    static const int64_t empty[] = {0, 8};
    emm_memory *memory = device_memory(128);
    emm_array array = floats(1);
    array.shape = empty;
    CHECK(emm_array_export(memory, 128, EMM_STREAM_UNORDERED, &array) == EMM_OK);
    CHECK(array.data == 0);
    emm_memory_release(memory);
}

static void exports_with_a_mask(void) {
    emm_memory *memory = device_memory(160);
    emm_array array = floats(0), mask = floats(0);
    mask.typestr = "|b1";
    CHECK(emm_array_export(memory, 128, EMM_STREAM_UNORDERED, &mask) == EMM_OK);
    array.mask = &mask;
    CHECK(emm_array_export(memory, 0, EMM_STREAM_UNORDERED, &array) == EMM_OK);
    CHECK(array.mask == &mask && emm_array_validate(&array) == EMM_OK);
    emm_memory *data = imported(&array, EMM_STREAM_UNORDERED, 0);
    emm_memory *valid = imported(array.mask, EMM_STREAM_UNORDERED, 0);
    CHECK(info_of(valid).ptr == info_of(memory).ptr + 128 && info_of(valid).size == 32);
    emm_memory_release(data);
    emm_memory_release(valid);
    emm_memory_release(memory);
}

static void exports_of_freed_memory(void) {
    emm_memory *memory = device_memory(128);
    emm_array array = floats(0);
    CHECK(emm_memory_free(memory) == EMM_OK);
    CHECK_REFUSED(emm_array_export(memory, 0, EMM_STREAM_UNORDERED, &array), EMM_E_ALREADY_FREED,
                  "its memory has been freed");
    emm_memory_release(memory);
}

const test exchange_tests[] = {
    {"an imported array keeps its owner until the last reference goes", owner_kept},
    {"without a finalizer the memory is the caller's to keep", caller_keeps},
    {"an import that is refused leaves the owner to the caller", refused_owner},
    {"an imported handle spans the bytes that negative strides reach", extents},
    {"an empty array becomes a handle of nothing", empty_import},
    {"imported memory has a host address if the host can use it", host_address},
    {"what the consumer's stream gets runs behind the producer's", ordered_on_stream},
    {"a consumer without a stream waits for the producer's", waited_for},
    {"without a stream, on the same one or asked not to, nothing is waited for",
     nothing_to_wait_for},
    {"a producer's stream that captures is refused, and its capture stays valid",
     capturing_producer},
    {"an export fills data and stream, and drops the strides of a C-contiguous array", exported},
    {"an export in version 2 waits, because it cannot tell a stream", exported_in_version_2},
    {"an array that leaves its memory is not exported", exports_that_leave_the_memory},
    {"host memory needs a device address, and hands on that it is read-only",
     exports_of_host_memory},
    {"an empty array is exported with data 0", empty_exports},
    {"a mask is handed on, and imported as the array it is", exports_with_a_mask},
    {"freed memory is not exported", exports_of_freed_memory},
    {NULL, NULL}};

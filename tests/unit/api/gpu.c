#include "gpu.h"
#include "check.h"

emm_context *gpu(void) {
    typedef CUresult(CUDAAPI * set_current)(CUcontext);
    static emm_context *context = NULL;
    if (!context) {
        emm_context_info info;
        memset(&info, 0, sizeof info);
        info.struct_size = sizeof info;
        CHECK(emm_context_for_device(0, &context) == EMM_OK);
        CHECK(emm_context_get_info(context, &info) == EMM_OK);
        CHECK(CU(set_current, "cuCtxSetCurrent")(info.cuda_context) == CUDA_SUCCESS);
    }
    return context;
}

CUstream new_stream(unsigned flags) {
    typedef CUresult(CUDAAPI * create)(CUstream *, unsigned);
    CUstream stream = NULL;
    gpu();
    CHECK(CU(create, "cuStreamCreate")(&stream, flags) == CUDA_SUCCESS);
    return stream;
}

void wait_for(CUstream stream) {
    typedef CUresult(CUDAAPI * synchronize)(CUstream);
    CHECK(CU(synchronize, "cuStreamSynchronize")(stream) == CUDA_SUCCESS);
}

void enqueue(CUstream stream, void (*function)(void *), void *argument) {
    typedef CUresult(CUDAAPI * launch)(CUstream, CUhostFn, void *);
    CHECK(CU(launch, "cuLaunchHostFunc")(stream, function, argument) == CUDA_SUCCESS);
}

uint64_t calls_of(const char *name) {
    typedef uint64_t (*count)(const char *);
    const count found = CU(count, "simcuda_call_count");
    return found ? found(name) : 0;
}

emm_memory *device_memory(size_t size) {
    emm_memory *memory = NULL;
    CHECK(emm_memory_alloc(gpu(), size, EMM_STREAM_UNORDERED, &memory) == EMM_OK);
    return memory;
}

emm_memory *host_memory(size_t size, uint32_t flags) {
    emm_memory *memory = NULL;
    CHECK(emm_memory_hostalloc(gpu(), size, flags, &memory) == EMM_OK);
    return memory;
}

emm_memory_info info_of(emm_memory *memory) {
    emm_memory_info info;
    memset(&info, 0, sizeof info);
    info.struct_size = sizeof info;
    CHECK(emm_memory_get_info(memory, &info) == EMM_OK);
    return info;
}

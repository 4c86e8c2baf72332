// A program under `emm run` that calls emm itself as well: a second cuMemFree of an address leaves
// the block alone that emm has given to the program there since.
#include <cstdio>
#include <cuda.h>
#include <dlfcn.h>
#include <emm/emm.h>

namespace {

constexpr size_t size = size_t(4) << 20;

template <class Function> Function *driver(const char *name) {
    return reinterpret_cast<Function *>(dlsym(dlopen("libcuda.so.1", RTLD_NOW), name));
}

int wrong(const char *what, int answer) {
    std::printf("%s: %d\n", what, answer);
    return 1;
}

} // namespace

int main() {
    const auto free_block = driver<CUresult(CUdeviceptr)>("cuMemFree_v2");
    CUcontext current = nullptr;
    CUstream stream = nullptr;
    CUdeviceptr block = 0;
    driver<CUresult(unsigned)>("cuInit")(0);
    driver<CUresult(CUcontext *, CUdevice)>("cuDevicePrimaryCtxRetain")(&current, 0);
    driver<CUresult(CUcontext)>("cuCtxSetCurrent")(current);
    driver<CUresult(CUstream *, unsigned)>("cuStreamCreate")(&stream, CU_STREAM_NON_BLOCKING);
    driver<CUresult(CUdeviceptr *, size_t, CUstream)>("cuMemAllocAsync")(&block, size, stream);
    emm_context *context = nullptr;
    if (driver<CUresult(CUdeviceptr, CUstream)>("cuMemFreeAsync")(block, stream) != CUDA_SUCCESS ||
        emm_context_current(&context) != EMM_OK) {
        return wrong("there is no block to free, or no context", 0);
    }
    emm_deviceptr again = 0;
    if (emm_memalloc(context, size, stream, &again) != EMM_OK || again != block) {
        return wrong("the address is not given out again", 0);
    }
    if (const CUresult answer = free_block(block); answer != CUDA_ERROR_INVALID_VALUE) {
        return wrong("the second cuMemFree", answer);
    }
    const emm_status status = emm_memfree(context, again, size, stream);
    return status == EMM_OK ? 0 : wrong("the block has been freed", status);
}

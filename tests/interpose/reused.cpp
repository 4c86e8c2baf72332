// A program under `emm run` that calls emm itself as well. `reused`: a second cuMemFree of an
// address leaves the block alone that emm has given to the program there since. `reused callbacks`:
// emm serves the code of the program that it calls within a served call. `reused retired`: a free
// on the NULL stream of a context that emm no longer serves follows that stream's work.
#include <cstdio>
#include <cstring>
#include <cuda.h>
#include <dlfcn.h>
#include <emm/emm.h>
#include <utility>

namespace {

constexpr size_t size = size_t(4) << 20;

template <class Function> Function *driver(const char *name) {
    return reinterpret_cast<Function *>(dlsym(dlopen("libcuda.so.1", RTLD_NOW), name));
}

int wrong(const char *what, int answer) {
    std::printf("%s: %d\n", what, answer);
    return 1;
}

int free_twice() {
    const auto free_block = driver<CUresult(CUdeviceptr)>("cuMemFree_v2");
    CUstream stream = nullptr;
    CUdeviceptr block = 0;
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

// The simulated driver stops work that uses the block before the earlier work is done.
int free_in_retired_context() {
    const auto allocate = driver<CUresult(CUdeviceptr *, size_t, CUstream)>("cuMemAllocAsync");
    const auto fill = driver<CUresult(CUdeviceptr, unsigned, size_t, CUstream)>("cuMemsetD32Async");
    const auto set_current = driver<CUresult(CUcontext)>("cuCtxSetCurrent");
    CUcontext served = nullptr, other = nullptr;
    CUdeviceptr block = 0, next = 0;
    emm_context *context = nullptr;
    driver<CUresult(CUcontext *)>("cuCtxGetCurrent")(&served);
    allocate(&block, size, nullptr);
    driver<CUresult()>("cuCtxSynchronize")();
    driver<CUresult(CUcontext *, unsigned, CUdevice)>("cuCtxCreate_v2")(&other, 0, 0);
    if (emm_context_current(&context) != EMM_OK || emm_context_retire(context) != EMM_OK) {
        return wrong("there is no context to retire", 0);
    }
    fill(block, 1, size / 4, nullptr);
    const CUresult freed =
        driver<CUresult(CUdeviceptr, CUstream)>("cuMemFreeAsync")(block, nullptr);
    set_current(served);
    allocate(&next, size, nullptr);
    const CUresult filled = fill(next, 2, size / 4, nullptr);
    return freed == CUDA_SUCCESS && filled == CUDA_SUCCESS ? 0 : wrong("free and fill", freed);
}

// --- code of the program that emm calls --------------------------------------------------------

constexpr size_t most = size_t(50) << 30; // of the device's 80 GiB

CUdeviceptr kept = 0;    // freed by the code that emm calls
CUdeviceptr by_hook = 0; // allocated by it
int calls = 0;

CUresult free_kept() {
    calls++;
    return driver<CUresult(CUdeviceptr)>("cuMemFree_v2")(std::exchange(kept, 0));
}

size_t press(emm_context *, size_t, void *) {
    return kept && free_kept() == CUDA_SUCCESS ? most : 0;
}

void run_hook(const emm_event *, void *) {
    if (by_hook == 0) {
        driver<CUresult(CUdeviceptr *, size_t)>("cuMemAlloc_v2")(&by_hook, size);
    }
}

// The driver fails to unpin the range, so the finalizer waits for the next pending frees.
void make_finalizer_pending(emm_context *context) {
    static char bytes[1 << 16];
    void *fail = nullptr;
    CUdriverProcAddressQueryResult found = {};
    emm_memory *pinned = nullptr;
    driver<decltype(cuGetProcAddress)>("cuGetProcAddress_v2")("simcuda_fail", &fail, 12000, 0,
                                                              &found);
    emm_memory_pin(
        context, bytes, sizeof bytes, 0, bytes, [](void *) { free_kept(); }, &pinned);
    reinterpret_cast<int (*)(const char *)>(fail)("cuMemHostUnregister@1");
    emm_memory_release(pinned);
}

int serve_callbacks() {
    const auto allocate = driver<CUresult(CUdeviceptr *, size_t)>("cuMemAlloc_v2");
    const auto free_block = driver<CUresult(CUdeviceptr)>("cuMemFree_v2");
    const auto get_info = driver<CUresult(size_t *, size_t *)>("cuMemGetInfo_v2");
    CUdeviceptr block = 0;
    emm_context *context = nullptr;
    emm_set_pressure_callback(&press, nullptr);
    if (allocate(&kept, most) != CUDA_SUCCESS || emm_context_current(&context) != EMM_OK) {
        return wrong("there is no memory, or no context", 0);
    }
    const CUresult pressed = allocate(&block, most);
    if (pressed != CUDA_SUCCESS || calls != 1) {
        return wrong("an allocation whose pressure callback frees", pressed);
    }
    emm_set_event_hook(&run_hook, nullptr, nullptr);
    free_block(block);
    emm_set_event_hook(nullptr, nullptr, nullptr);
    auto info = emm_block_info{};
    info.struct_size = sizeof info;
    if (emm_query(context, by_hook, &info) != EMM_OK || free_block(by_hook) != CUDA_SUCCESS) {
        return wrong("what an event hook allocates is not emm's", 0);
    }
    allocate(&kept, most);
    make_finalizer_pending(context);
    size_t free = 0, total = 0;
    get_info(&free, &total);
    return calls == 2 && get_info(&free, &total) == CUDA_SUCCESS && free > most
               ? 0
               : wrong("a finalizer that frees", calls);
}

} // namespace

int main(int argc, char *argv[]) {
    CUcontext current = nullptr;
    driver<CUresult(unsigned)>("cuInit")(0);
    driver<CUresult(CUcontext *, CUdevice)>("cuDevicePrimaryCtxRetain")(&current, 0);
    driver<CUresult(CUcontext)>("cuCtxSetCurrent")(current);
    return argc < 2                               ? free_twice()
           : std::strcmp(argv[1], "retired") == 0 ? free_in_retired_context()
                                                  : serve_callbacks();
}

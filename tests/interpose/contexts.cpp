#include "cases.h"
#include "objects.h"

#include <thread>

namespace {

CUcontext current() {
    CUcontext context = nullptr;
    NEED(cu.cuCtxGetCurrent(&context));
    return context;
}

CUcontext create() {
    CUcontext context = nullptr;
    NEED(cu.cuCtxCreate_v2(&context, 0, 0));
    return context;
}

CUcontext context_of(CUdeviceptr address) {
    CUcontext context = nullptr;
    NEED(cu.cuPointerGetAttribute(&context, CU_POINTER_ATTRIBUTE_CONTEXT, address));
    return context;
}

// A context that ends with memory of every kind.
bool one_life(CUcontext outer) {
    const CUcontext context = create();
    CUstream stream = nullptr;
    CUdeviceptr managed = 0;
    void *host = nullptr;
    NEED(cu.cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING)); // ends with the context
    const CUdeviceptr block = allocate(16 * mib);
    NEED(cu.cuMemAllocManaged(&managed, mib, CU_MEM_ATTACH_GLOBAL));
    NEED(cu.cuMemHostAlloc(&host, mib, 0));
    NEED(fill(block, 16 * mib, 101, stream));
    const bool right =
        holds(block, 16 * mib, 101, stream) && context_of(block) == context && current() == context;
    NEED(cu.cuMemFree(allocate(mib)));
    NEED(cu.cuCtxDestroy(context));
    return right && current() == outer && !is_known(block) && !is_known(managed) &&
           !is_known(reinterpret_cast<CUdeviceptr>(host));
}

void usage_count() {
    CUcontext attached = nullptr;
    const CUcontext outer = current(), context = create();
    const CUdeviceptr block = allocate(mib);
    result(cu.cuCtxAttach(&attached, 0), CUDA_SUCCESS, "attach");
    fact(attached == context, "attach gives the context itself");
    NEED(cu.cuCtxSetCurrent(outer));
    for (const char *which : {"first", "second"}) {
        result(cu.cuCtxDetach(context), CUDA_ERROR_INVALID_CONTEXT,
               "detach from what is not current, the %s time", which);
    }
    fact(is_known(block), "nothing has changed");
    NEED(cu.cuCtxSetCurrent(context));
    result(cu.cuCtxDetach(context), CUDA_SUCCESS, "detach");
    fact(is_known(block), "the context is still there");
    result(cu.cuCtxDetach(context), CUDA_SUCCESS, "detach, the second time");
    fact(!is_known(block), "and no longer");
}

bool is_active() {
    unsigned flags = 0;
    int active = 0;
    NEED(cu.cuDevicePrimaryCtxGetState(0, &flags, &active));
    return active;
}

// Only its releases end a primary context: its memory stays.
void refused_ends(CUcontext primary) {
    const Stream stream;
    const CUdeviceptr block = allocate(mib);
    NEED(fill(block, mib, 103, stream));
    result(cu.cuCtxDestroy(primary), CUDA_ERROR_INVALID_CONTEXT, "destroy of a primary context");
    result(cu.cuCtxDetach(primary), CUDA_SUCCESS, "detach from a primary context");
    fact(is_active() && current() == primary, "it is still there, and current");
    fact(holds(block, mib, 103, stream), "its memory: bytes ok");
    const CUdeviceptr next = allocate(mib);
    NEED(fill(next, mib, 104, stream));
    fact(holds(block, mib, 103, stream), "and after a further allocation: bytes ok");
    result(cu.cuMemFree(next), CUDA_SUCCESS, "free");
    result(cu.cuMemFree(block), CUDA_SUCCESS, "free of what was there before");
}

void between_two(CUcontext outer) {
    const CUdeviceptr block = allocate(mib);
    const CUcontext context = create();
    const CUdeviceptr own = allocate(mib);
    fact(context_of(block) == outer && context_of(own) == context, "each block has its context");
    result(cu.cuMemFree(block), CUDA_SUCCESS, "free of the other context's");
    NEED(cu.cuCtxSetCurrent(outer));
    result(cu.cuMemFree(own), CUDA_SUCCESS, "free of the other context's, the other way");
    const CUdeviceptr next = allocate(mib);
    const Stream stream;
    NEED(fill(next, mib, 102, stream));
    fact(holds(next, mib, 102, stream), "the next block: bytes ok");
    NEED(cu.cuMemFree(next));
    NEED(cu.cuCtxDestroy(context));
}

// A context that ends while it is current to another thread.
void current_elsewhere() {
    const CUcontext outer = current(), context = create();
    NEED(cu.cuCtxSetCurrent(outer));
    CUdeviceptr address = 0;
    CUresult after = CUDA_SUCCESS;
    std::thread([&] {
        NEED(cu.cuCtxSetCurrent(context));
        std::thread([&] { NEED(cu.cuCtxDestroy(context)); }).join();
        after = cu.cuMemAlloc(&address, mib);
    }).join();
    result(after, CUDA_ERROR_CONTEXT_IS_DESTROYED, "cuMemAlloc where a context was current");
}

} // namespace

void contexts_case() {
    constexpr int lives = 20;
    const Primary primary;
    int right = 0;
    NEED(cu.cuMemFree(allocate(mib)));
    const uint64_t before = free_memory();
    for (int life = 0; life < lives; ++life) {
        right += one_life(primary.context);
    }
    fact(right == lives, "%d contexts that ended with live memory", lives);
    fact(free_memory() + 128 * mib > before, "their memory is free again");
    usage_count();
    NEED(cu.cuCtxSetCurrent(primary.context));
    refused_ends(primary.context);
    between_two(primary.context);
    current_elsewhere();
}

namespace {

CUdeviceptr retain_and_allocate() {
    CUcontext context = nullptr;
    NEED(cu.cuDevicePrimaryCtxRetain(&context, 0));
    NEED(cu.cuCtxSetCurrent(context));
    const CUdeviceptr block = allocate(mib);
    const Stream stream;
    NEED(fill(block, mib, 111, stream));
    fact(holds(block, mib, 111, stream), "a block of the primary context: bytes ok");
    return block;
}

} // namespace

void primary_case() {
    NEED(cu.cuInit(0));
    fact(!is_active(), "there is none at first");
    for (const char *time : {"first", "second"}) {
        const CUdeviceptr once = retain_and_allocate(), twice = retain_and_allocate();
        result(cu.cuDevicePrimaryCtxRelease(0), CUDA_SUCCESS, "%s time, release", time);
        fact(is_active() && is_known(once) && is_known(twice), "%s time, it is still there", time);
        result(cu.cuDevicePrimaryCtxRelease(0), CUDA_SUCCESS, "%s time, the last release", time);
        fact(!is_active() && !is_known(once) && !is_known(twice), "%s time, it has ended", time);
    }
    const CUdeviceptr before = retain_and_allocate();
    CUcontext primary = nullptr;
    NEED(cu.cuCtxGetCurrent(&primary));
    result(cu.cuCtxDestroy(primary), CUDA_ERROR_INVALID_CONTEXT, "cuCtxDestroy of it");
    fact(is_active() && is_known(before), "it is still there, with its memory");
    result(cu.cuDevicePrimaryCtxReset(0), CUDA_SUCCESS, "reset");
    fact(!is_active() && !is_known(before), "its memory is gone");
    const CUdeviceptr after = retain_and_allocate();
    result(cu.cuMemFree(after), CUDA_SUCCESS, "free of memory of after the reset");
    result(cu.cuDevicePrimaryCtxRelease(0), CUDA_SUCCESS, "release of the retain before the reset");
    fact(is_active(), "the reset released nothing");
    result(cu.cuDevicePrimaryCtxRelease(0), CUDA_SUCCESS, "release of the retain after it");
    fact(!is_active(), "it has ended");
    result(cu.cuDevicePrimaryCtxRelease(0), CUDA_ERROR_INVALID_CONTEXT, "one release more");
    NEED(cu.cuCtxSetCurrent(nullptr));
}

// Memory of cuMemAllocAsync belongs to no context, and outlives its stream's context.
void survivors_case() {
    const Primary primary;
    const CUcontext context = create();
    CUdeviceptr survivor = 0;
    {
        const Stream stream;
        survivor = allocate_async(mib, stream);
        NEED(fill(survivor, mib, 121, stream));
        NEED(cu.cuStreamSynchronize(stream));
    }
    NEED(cu.cuCtxDestroy(context));
    fact(current() == primary.context, "the outer context is current again");
    fact(is_known(survivor), "the memory is known after its context");
    const Stream stream;
    fact(is_known(survivor) && holds(survivor, mib, 121, stream), "its bytes: ok");
    result(cu.cuMemFreeAsync(survivor, stream), CUDA_SUCCESS, "its free");
    NEED(cu.cuStreamSynchronize(stream));
}

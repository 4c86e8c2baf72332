// Green contexts, whose memory is the primary context's, and whose streams are not.
#include "cases.h"
#include "objects.h"

// Headers before CUDA 12.5 lack the types.
#if CUDA_VERSION >= 12050
namespace {

struct Green {
    Green() {
        CUdevResource all = {}, part = {};
        CUdevResourceDesc description = nullptr;
        unsigned groups = 1;
        NEED(entry_of<decltype(cuDeviceGetDevResource)>("cuDeviceGetDevResource",
                                                        12050)(0, &all, CU_DEV_RESOURCE_TYPE_SM));
        NEED(entry_of<decltype(cuDevSmResourceSplitByCount)>("cuDevSmResourceSplitByCount", 12050)(
            &part, &groups, &all, nullptr, 0, 8));
        NEED(entry_of<decltype(cuDevResourceGenerateDesc)>("cuDevResourceGenerateDesc",
                                                           12050)(&description, &part, 1));
        NEED(entry_of<decltype(cuGreenCtxCreate)>("cuGreenCtxCreate", 12050)(
            &handle, description, 0, CU_GREEN_CTX_DEFAULT_STREAM));
        NEED(entry_of<decltype(cuCtxFromGreenCtx)>("cuCtxFromGreenCtx", 12050)(&context, handle));
    }
    ~Green() { entry_of<decltype(cuGreenCtxDestroy)>("cuGreenCtxDestroy", 12050)(handle); }
    Green(const Green &) = delete;
    Green &operator=(const Green &) = delete;

    CUstream make_stream() const {
        CUstream stream = nullptr;
        NEED(entry_of<decltype(cuGreenCtxStreamCreate)>("cuGreenCtxStreamCreate", 12050)(
            &stream, handle, CU_STREAM_NON_BLOCKING, 0));
        return stream;
    }
    CUgreenCtx handle = nullptr;
    CUcontext context = nullptr;
};

void enter_context(CUcontext context) {
    NEED(cu.cuCtxSetCurrent(context));
}

// The driver stops a use that is not ordered behind an earlier one.
void pass_on(CUcontext from, CUstream before, CUcontext to, CUstream after, const char *name) {
    enter_context(from);
    const CUdeviceptr first = allocate_async(mib, before);
    NEED(fill(first, mib, 91, before));
    NEED(cu.cuMemFreeAsync(first, before));
    enter_context(to);
    const CUdeviceptr second = allocate_async(mib, after);
    NEED(fill(second, mib, 92, after));
    fact(holds(second, mib, 92, after), "%s: bytes ok", name);
    NEED(cu.cuMemFreeAsync(second, after));
}

// With per-thread default streams NULL is the thread's own, which a green context has not.
CUstream null_stream() {
    unsigned long long null = 0, own = 0;
    NEED(cu.cuStreamGetId(nullptr, &null));
    NEED(cu.cuStreamGetId(CU_STREAM_PER_THREAD, &own));
    return null == own ? CU_STREAM_LEGACY : nullptr;
}

void null_streams(CUcontext primary, const Green &green) {
    const CUstream null = null_stream();
    pass_on(green.context, null, primary, null, "from a green context's NULL stream");
    pass_on(primary, null, green.context, null, "to a green context's NULL stream");
    pass_on(green.context, null, green.context, null, "both on a green context's NULL");
    enter_context(primary);
}

void streams(CUcontext primary, const Green &green) {
    const CUstream stream = green.make_stream();
    pass_on(green.context, stream, primary, nullptr, "from a green context's stream");
    pass_on(primary, nullptr, green.context, stream, "to a green context's stream");
    pass_on(primary, stream, primary, stream, "on it, while the primary context is current");
    NEED(cu.cuStreamDestroy(stream));
    const CUstream next = green.make_stream(); // the same handle
    pass_on(primary, next, primary, nullptr, "on the next stream");
    NEED(cu.cuStreamDestroy(next));
}

void own_stream(CUcontext primary, const Green &green) {
    CUdeviceptr address = 0;
    enter_context(green.context);
    result(cu.cuMemAllocAsync(&address, mib, CU_STREAM_PER_THREAD), CUDA_ERROR_INVALID_HANDLE,
           "a green context has no own stream of a thread");
    address = allocate(mib);
    result(cu.cuMemFreeAsync(address, CU_STREAM_PER_THREAD), CUDA_ERROR_INVALID_HANDLE,
           "nor for a free");
    result(cu.cuMemFree(address), CUDA_SUCCESS, "a free after that");
    enter_context(primary);
}

// The handle of a green context, and those of its streams, may be another context's later.
void next_context() {
    CUcontext user = nullptr;
    {
        const Green green;
        const CUstream stream = green.make_stream();
        enter_context(green.context);
        NEED(cu.cuMemFreeAsync(allocate_async(mib, stream), stream));
        NEED(cu.cuStreamSynchronize(stream));
        NEED(cu.cuStreamDestroy(stream));
        enter_context(nullptr);
    }
    NEED(cu.cuCtxCreate_v2(&user, 0, 0));
    const CUdeviceptr address = allocate(mib);
    CUcontext owner = nullptr;
    NEED(cu.cuPointerGetAttribute(&owner, CU_POINTER_ATTRIBUTE_CONTEXT, address));
    fact(owner == user, "a context made after it has its own memory");
    NEED(cu.cuCtxDestroy(user));
}

// The primary context lives as long as its green context.
void after_the_last_release() {
    CUcontext primary = nullptr;
    NEED(cu.cuDevicePrimaryCtxRetain(&primary, 0));
    enter_context(primary);
    const CUdeviceptr kept = allocate(mib);
    {
        const Green green;
        const CUstream stream = green.make_stream();
        NEED(fill(kept, mib, 93, stream));
        NEED(cu.cuStreamSynchronize(stream));
        NEED(cu.cuDevicePrimaryCtxRelease(0));
        fact(is_known(kept), "memory stays while a green context is there");
        enter_context(green.context);
        const CUdeviceptr more = allocate(mib);
        fact(holds(kept, mib, 93, stream), "its bytes: ok");
        result(cu.cuMemFree(more), CUDA_SUCCESS, "a free there");
        NEED(cu.cuStreamDestroy(stream));
        enter_context(nullptr);
    }
    NEED(cu.cuDevicePrimaryCtxRetain(&primary, 0));
    enter_context(primary);
    fact(!is_known(kept), "and is gone with it");
    NEED(cu.cuDevicePrimaryCtxRelease(0));
    enter_context(nullptr);
}

} // namespace

void green_case() {
    {
        const Primary primary;
        const Green green;
        null_streams(primary.context, green);
        streams(primary.context, green);
        own_stream(primary.context, green);
    }
    next_context();
    after_the_last_release();
}
#else
void green_case() {
    skipped("the header knows no green contexts");
}
#endif

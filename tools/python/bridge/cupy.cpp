#include "bridge.h"
#include "device.h"

using namespace emm;

namespace {

bool has(void *param, uintptr_t flag) {
    return reinterpret_cast<uintptr_t>(param) & flag;
}

emm_stream stream_of(void *param) {
    return has(param, EMM_CUPY_LEGACY) ? EMM_STREAM_LEGACY : EMM_STREAM_UNORDERED;
}

emm_status allocate(emm_context *context, void *param, size_t size, void **ret_ptr) {
    if (has(param, EMM_CUPY_PINNED)) {
        return emm_memhostalloc(context, size, EMM_HOST_PORTABLE, ret_ptr, nullptr);
    }
    emm_deviceptr ptr = 0;
    const emm_status status = emm_memalloc(context, size, stream_of(param), &ptr);
    *ret_ptr = reinterpret_cast<void *>(static_cast<uintptr_t>(ptr));
    return status;
}

} // namespace

void *emm_cupy_malloc(void *param, size_t size, int device) {
    emm_context *context = nullptr;
    void *ptr = nullptr;
    emm_status status = bridge::find_context(device, &context);
    if (status >= EMM_OK) {
        status = allocate(context, param, size, &ptr);
    }
    if (status < EMM_OK && !has(param, EMM_CUPY_TESTED)) {
        bridge::refuse("emm cannot allocate", size, device);
    }
    return ptr;
}

void emm_cupy_free(void *param, void *ptr, int device) {
    emm_context *context = bridge::known_context(device);
    if (!context || !ptr) {
        return;
    }
    if (has(param, EMM_CUPY_PINNED)) {
        emm_memhostfree(context, ptr, 0, EMM_HOST_PORTABLE, EMM_STREAM_UNORDERED);
    } else {
        emm_memfree(context, reinterpret_cast<uintptr_t>(ptr), 0, stream_of(param));
    }
}

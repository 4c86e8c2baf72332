#include "bridge.h"
#include "device.h"

using namespace emm;

namespace {

emm_stream stream_of(void *param) {
    const bool legacy = reinterpret_cast<uintptr_t>(param) & EMM_CUPY_LEGACY;
    return legacy ? EMM_STREAM_LEGACY : EMM_STREAM_UNORDERED;
}

} // namespace

void *emm_cupy_malloc(void *param, size_t size, int device) {
    emm_context *context = nullptr;
    emm_deviceptr ptr = 0;
    emm_status status = bridge::find_context(device, &context);
    if (status >= EMM_OK) {
        status = emm_memalloc(context, size, stream_of(param), &ptr);
    }
    if (status < EMM_OK && !(reinterpret_cast<uintptr_t>(param) & EMM_CUPY_TESTED)) {
        bridge::refuse("emm cannot allocate", size, device);
    }
    return reinterpret_cast<void *>(static_cast<uintptr_t>(ptr));
}

void emm_cupy_free(void *param, void *ptr, int device) {
    emm_context *context = bridge::known_context(device);
    if (context && ptr) {
        emm_memfree(context, reinterpret_cast<uintptr_t>(ptr), 0, stream_of(param));
    }
}

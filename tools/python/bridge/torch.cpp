#include "bridge.h"
#include "device.h"
#include "exceptions.h"

#include <string>

using namespace emm;

namespace {

emm_deviceptr address_of(void *ptr) {
    return reinterpret_cast<uintptr_t>(ptr);
}

// Programs look for PyTorch's own words to recognise this error.
[[noreturn]] void refuse_allocation(emm_status status, size_t size, int device) {
    bridge::refuse(status == EMM_E_OUT_OF_MEMORY ? "CUDA out of memory. Tried to allocate"
                                                 : "emm cannot allocate",
                   size, device);
}

} // namespace

void *emm_torch_malloc(ssize_t size, int device, emm_stream stream) {
    if (size == 0) {
        return nullptr;
    }
    if (size < 0) {
        bridge::throw_error("emm cannot allocate " + std::to_string(size) + " bytes");
    }
    emm_context *context = nullptr;
    emm_deviceptr ptr = 0;
    emm_status status = bridge::find_context(device, &context);
    if (status >= EMM_OK) {
        status = emm_memalloc(context, size_t(size), stream, &ptr);
    }
    if (status < EMM_OK) {
        refuse_allocation(status, size_t(size), device);
    }
    return reinterpret_cast<void *>(static_cast<uintptr_t>(ptr));
}

void emm_torch_free(void *ptr, size_t size, int device, emm_stream stream) {
    emm_context *context = bridge::known_context(device);
    if (context && ptr) {
        emm_memfree(context, address_of(ptr), size, stream);
    }
}

// PyTorch does not say which device the memory is on: whose it is knows it.
void emm_torch_record_stream(void *ptr, emm_stream stream) {
    for (int device = 0; ptr && device < bridge::most_devices; device++) {
        emm_context *context = bridge::known_context(device);
        if (context && emm_record_use(context, address_of(ptr), 0, stream) >= EMM_OK) {
            return;
        }
    }
    if (ptr) {
        bridge::throw_error("emm cannot record the use of a tensor on another stream: " +
                            std::string(emm_last_error()->text));
    }
}

// PyTorch does not say which stream will capture, and announces the capture of a graph like any
// other use of a pool. To announce one too many only holds unordered frees back for a while.
void emm_torch_begin_allocate_to_pool(int device, TorchPool, TorchFilter) {
    emm_context *context = nullptr;
    if (bridge::find_context(device, &context) < EMM_OK ||
        emm_capture_begin(context, EMM_STREAM_LEGACY) < EMM_OK) {
        bridge::throw_error("emm cannot prepare for the capture of a graph: " +
                            std::string(emm_last_error()->text));
    }
}

void emm_torch_end_allocate_to_pool(int device, TorchPool) {
    if (emm_context *context = bridge::known_context(device)) {
        emm_capture_end(context, EMM_STREAM_LEGACY);
    }
}

void emm_torch_empty_cache(void) {
    for (int device = 0; device < bridge::most_devices; device++) {
        if (emm_context *context = bridge::known_context(device)) {
            emm_trim(context, 0, nullptr);
        }
    }
}

#include "bridge.h"
#include "device.h"

#include <atomic>
#include <mutex>
#include <unordered_set>

using namespace emm;

namespace {

std::atomic<intptr_t (*)()> current_stream{nullptr};

// Memory with EMM_CUPY_CURRENT that was allocated while another stream than the default stream was
// current. Other programs pay one load. Never destroyed, because CuPy frees to the very end.
std::atomic<size_t> elsewhere_count{0};

struct Elsewhere {
    std::mutex mutex;
    std::unordered_set<void *> held;
};

Elsewhere &elsewhere() {
    static auto *const one = new Elsewhere;
    return *one;
}

void add_elsewhere(void *ptr) {
    Elsewhere &all = elsewhere();
    const std::lock_guard lock(all.mutex);
    all.held.insert(ptr);
    elsewhere_count.store(all.held.size(), std::memory_order_relaxed);
}

// Whether the memory was in the table. The caller got `ptr` after it was counted, so a count of 0
// means no.
bool remove_elsewhere(void *ptr) {
    if (elsewhere_count.load(std::memory_order_relaxed) == 0) {
        return false;
    }
    Elsewhere &all = elsewhere();
    const std::lock_guard lock(all.mutex);
    const bool held = all.held.erase(ptr) != 0;
    elsewhere_count.store(all.held.size(), std::memory_order_relaxed);
    return held;
}

bool has(void *param, uintptr_t flag) {
    return reinterpret_cast<uintptr_t>(param) & flag;
}

bool is_default_current() {
    intptr_t (*const ask)() = current_stream.load(std::memory_order_acquire);
    return ask && ask() == 0;
}

emm_status allocate_device(emm_context *context, void *param, size_t size, void **ret_ptr) {
    const bool ordered =
        has(param, EMM_CUPY_CURRENT) ? is_default_current() : has(param, EMM_CUPY_LEGACY);
    const emm_stream stream = ordered ? EMM_STREAM_LEGACY : EMM_STREAM_UNORDERED;
    emm_deviceptr ptr = 0;
    const emm_status status = emm_memalloc(context, size, stream, &ptr);
    *ret_ptr = reinterpret_cast<void *>(static_cast<uintptr_t>(ptr));
    if (status < EMM_OK || ptr == 0 || ordered || !has(param, EMM_CUPY_CURRENT)) {
        return status;
    }
    try {
        add_elsewhere(*ret_ptr);
    } catch (const std::bad_alloc &) {
        emm_memfree(context, ptr, size, stream);
        *ret_ptr = nullptr;
        return EMM_E_OUT_OF_HOST_MEMORY;
    }
    return status;
}

emm_status allocate(emm_context *context, void *param, size_t size, void **ret_ptr) {
    return has(param, EMM_CUPY_PINNED)
               ? emm_memhostalloc(context, size, EMM_HOST_PORTABLE, ret_ptr, nullptr)
               : allocate_device(context, param, size, ret_ptr);
}

bool was_ordered(void *param, void *ptr) {
    return has(param, EMM_CUPY_CURRENT) ? !remove_elsewhere(ptr) : has(param, EMM_CUPY_LEGACY);
}

} // namespace

void emm_cupy_set_current_stream(intptr_t (*function)()) {
    current_stream.store(function, std::memory_order_release);
}

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
        return;
    }
    const emm_stream stream = was_ordered(param, ptr) ? EMM_STREAM_LEGACY : EMM_STREAM_UNORDERED;
    emm_memfree(context, reinterpret_cast<uintptr_t>(ptr), 0, stream);
}

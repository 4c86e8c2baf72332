#include "bridge.h"
#include "device.h"
#include "pinned_arrays.h"

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <mutex>

using namespace emm;
using bridge::PinnedArrays;

namespace {

// After emm_shutdown, a reset of the device, its loss or a fork, memory can no longer be pinned,
// and NumPy must go on.
bool is_past(emm_status status) {
    return status == EMM_E_SHUT_DOWN || status == EMM_E_RETIRED || status == EMM_E_DEVICE_LOST ||
           status == EMM_E_FORKED;
}

void *allocate(void *ctx, size_t size) {
    void *array = nullptr;
    if (size > PinnedArrays::largest) {
        return nullptr;
    }
    const emm_status status =
        PinnedArrays::of_process().make(static_cast<emm_context *>(ctx), size, &array);
    return is_past(status) ? std::malloc(std::max<size_t>(size, 1)) : array;
}

void *allocate_zeroed(void *ctx, size_t count, size_t size) {
    if (size != 0 && count > SIZE_MAX / size) {
        return nullptr;
    }
    void *array = allocate(ctx, count * size);
    return array ? std::memset(array, 0, count * size) : nullptr;
}

void deallocate(void *, void *array, size_t) {
    if (array && !PinnedArrays::of_process().drop(array)) {
        std::free(array);
    }
}

// If the new size still fits, the array stays in place, unless half of its block would lie idle.
void *reallocate(void *ctx, void *array, size_t size) {
    const size_t room = array ? PinnedArrays::of_process().room_of(array) : 0;
    if (array && room == 0) {
        return std::realloc(array, std::max<size_t>(size, 1));
    }
    if (array && size <= room && size >= room / 2) {
        return array;
    }
    void *moved = allocate(ctx, size);
    if (moved && array) {
        std::memcpy(moved, array, std::min(size, room));
        deallocate(ctx, array, size);
    }
    return moved;
}

} // namespace

NumpyHandler *emm_numpy_handler(int device) {
    static std::mutex mutex;
    static NumpyHandler handlers[bridge::most_devices];
    emm_context *context = nullptr;
    emm_context_info info = {};
    info.struct_size = sizeof info;
    if (bridge::find_context(device, &context) < EMM_OK || device >= bridge::most_devices ||
        emm_context_get_info(context, &info) < EMM_OK) { // in a forked child, which must not wait
        return nullptr;
    }
    const std::lock_guard lock(mutex);
    NumpyHandler &handler = handlers[device];
    if (handler.version == 0) {
        std::snprintf(handler.name, sizeof handler.name, "emm pinned memory of device %d", device);
        handler.allocator = {context, allocate, allocate_zeroed, reallocate, deallocate};
        handler.version = 1;
    }
    return &handler;
}

const char *emm_numpy_capsule_name(void) {
    return "mem_handler";
}

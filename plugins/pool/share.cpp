// Memory that other processes have open: CUDA's legacy IPC, which names a whole block of
// cuMemAlloc, and the offset in it. An allocation that is freed while it is exported waits with its
// use record until the last export ends, so neither a trim nor another allocation gets at it.
#include "manager.h"

#include <algorithm>
#include <cstring>

namespace emm::pool {
namespace {

bool is_same(const emm_ipc_handle &a, const emm_ipc_handle &b) {
    return a.kind == b.kind && a.offset == b.offset && a.size == b.size &&
           std::memcmp(a.handle, b.handle, sizeof a.handle) == 0;
}

} // namespace

emm_status Manager::get_ipc_handle(emm_deviceptr ptr, size_t size, emm_ipc_handle *ret_handle) {
    Lock lock(mutex_);
    const Place place = heap_.around(ptr);
    const bool hidden =
        place && !options_.paged && options_.dedicated && !segment_of(place).dedicated;
    if (!place || options_.paged || hidden || size > begin_of(place) + asked_of(place) - ptr) {
        lock.unlock();
        return refuse_export(ptr, size, place);
    }
    exports_.reserve(exports_.size() + 1);
    UseRecord &record = record_of(place);
    record.exports++;
    const Segment &segment = segment_of(place);
    emm_ipc_handle handle = {};
    handle.kind = EMM_IPC_LEGACY;
    handle.offset = ptr - segment.driver_base;
    handle.size = size;
    handle.exported_size = segment.driver_bytes;
    lock.unlock();
    const CUresult result = get_driver_handle(segment, handle);
    lock.lock();
    if (result != CUDA_SUCCESS) {
        end_export(lock, record);
        lock.unlock();
        return failed(result, "cuIpcGetMemHandle");
    }
    exports_.reserve(exports_.size() + 1);
    exports_.push_back({&record, handle});
    *ret_handle = handle;
    return EMM_OK;
}

emm_status Manager::refuse_export(emm_deviceptr ptr, size_t size, Place place) {
    if (!place) {
        return emm_failf(&host_, EMM_E_NOT_OWNED, 0,
                         "pool: an export of 0x%llx, which lies in no live allocation of this "
                         "manager",
                         ptr);
    }
    if (options_.paged) {
        return host_.fail(EMM_E_NOT_SUPPORTED, 0,
                          "pool: memory of growth=vmm has no legacy handle; growth=segment does");
    }
    if (options_.dedicated && !segment_of(place).dedicated) {
        return emm_failf(&host_, EMM_E_NOT_SUPPORTED, 0,
                         "pool: an export of an allocation of less than %llu bytes, which shares "
                         "its segment; ipc=shared, or a smaller dedicated_from, allows it",
                         static_cast<unsigned long long>(options_.dedicated_from));
    }
    return emm_failf(&host_, EMM_E_INVALID_VALUE, 0,
                     "pool: an export of %zu bytes at 0x%llx, where the allocation ends before",
                     size, ptr);
}

CUresult Manager::get_driver_handle(const Segment &segment, emm_ipc_handle &handle) {
    if (!driver_.cuIpcGetMemHandle) {
        return CUDA_ERROR_NOT_SUPPORTED;
    }
    const Current current(driver_, context_, context_id_);
    if (current.result() != CUDA_SUCCESS) {
        return current.result();
    }
    const Relaxed relaxed(driver_);
    CUipcMemHandle made;
    const CUresult result = driver_.cuIpcGetMemHandle(&made, segment.driver_base);
    if (result == CUDA_SUCCESS) {
        std::memcpy(handle.handle, &made, sizeof handle.handle);
    }
    return result;
}

emm_status Manager::release_ipc_handle(const emm_ipc_handle *handle) {
    Lock lock(mutex_);
    const auto found = std::find_if(exports_.begin(), exports_.end(), [&](const Export &each) {
        return is_same(each.handle, *handle);
    });
    if (found == exports_.end()) {
        lock.unlock();
        return host_.fail(EMM_E_NOT_OWNED, 0, "pool: the IPC handle is no export of this manager");
    }
    UseRecord &record = *found->record;
    exports_.erase(found);
    end_export(lock, record);
    check();
    return EMM_OK;
}

// An allocation that lives on has no use for an empty record; one that was freed meanwhile goes on
// from here.
void Manager::end_export(Lock &lock, UseRecord &record) {
    if (--record.exports > 0) {
        return;
    }
    if (record.home) {
        if (Domain *used = advance(record)) {
            seal_if_reachable(lock, *used);
        }
    } else if (record.uses.empty()) {
        const Place place{record.block, record.slot};
        uses_of(place) = nullptr;
        if (!capture_of(place)) {
            end_special(place);
        }
        uses_.remove(record);
        delete &record;
    }
}

} // namespace emm::pool

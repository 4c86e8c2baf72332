// Memory that other processes have open: CUDA's legacy IPC, which names a whole block of
// cuMemAlloc, and the offset in it; or, of growth=vmm, the pages behind it, which the host serves
// by descriptor. An allocation that is freed while it is exported waits with its use record until
// the last export ends, so neither a trim nor another allocation gets at it, and its pages stay.
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
    const bool hidden = place && options_.dedicated && place.segment().zone != Zone::dedicated;
    if (!place || hidden || size > place.begin() + place.requested() - ptr) {
        lock.unlock();
        return refuse_export(ptr, size, place);
    }
    const Segment &segment = place.segment();
    std::vector<emm_ipc_part> pages;
    if (segment.paged()) {
        pages = pages_behind(segment, ptr, size);
    }
    std::list<Export> made(1); // so that nothing can fail once the export is there
    UseRecord &record = order_.begin_export(place);
    made.front().record = &record;
    emm_ipc_handle &handle = made.front().handle;
    lock.unlock();
    const emm_status status =
        segment.paged() ? serve_pages(pages, ptr - segment.pieces.at(ptr).address, size, handle)
                        : get_driver_handle(segment, ptr, size, handle);
    lock.lock();
    if (status != EMM_OK) {
        order_.end_export(lock, record);
        return status;
    }
    *ret_handle = handle;
    exports_.splice(exports_.end(), made);
    return EMM_OK;
}

// They are all there: the allocation is live.
std::vector<emm_ipc_part> Manager::pages_behind(const Segment &segment, uint64_t ptr,
                                                uint64_t size) {
    std::vector<emm_ipc_part> parts;
    for (Piece piece = segment.pieces.at(ptr);; piece = segment.pieces.at(piece.end())) {
        parts.push_back({piece.handle, piece.bytes});
        if (piece.end() >= ptr + size) {
            return parts;
        }
    }
}

emm_status Manager::serve_pages(const std::vector<emm_ipc_part> &pages, uint64_t offset,
                                uint64_t size, emm_ipc_handle &handle) {
    if (!pages_shareable_) {
        return host_.fail(EMM_E_NOT_SUPPORTED, 0,
                          "pool: memory of growth=vmm is shared by file descriptor, which takes a "
                          "device that supports it and a host that serves it; growth=segment has "
                          "legacy handles");
    }
    emm_ipc_source source = {};
    source.struct_size = sizeof source;
    source.kind = EMM_IPC_FILE_DESCRIPTOR;
    source.parts = pages.data();
    source.part_count = pages.size();
    source.offset = offset;
    source.size = size;
    return host_.serve_ipc(served_.emm, &source, &handle);
}

emm_status Manager::refuse_export(emm_deviceptr ptr, size_t size, Place place) {
    if (!place) {
        return emm_failf(&host_, EMM_E_NOT_OWNED, 0,
                         "pool: an export of 0x%llx, which lies in no live allocation of this "
                         "manager",
                         ptr);
    }
    if (options_.dedicated && place.segment().zone != Zone::dedicated) {
        return emm_failf(&host_, EMM_E_NOT_SUPPORTED, 0,
                         "pool: an export of an allocation of less than %llu bytes, which shares "
                         "its segment; ipc=shared, or a smaller dedicated_from, allows it",
                         static_cast<unsigned long long>(options_.dedicated_from));
    }
    return emm_failf(&host_, EMM_E_INVALID_VALUE, 0,
                     "pool: an export of %zu bytes at 0x%llx, where the allocation ends before",
                     size, ptr);
}

emm_status Manager::get_driver_handle(const Segment &segment, uint64_t ptr, uint64_t size,
                                      emm_ipc_handle &handle) {
    CUipcMemHandle made;
    CUresult result = CUDA_ERROR_NOT_SUPPORTED;
    if (driver_.cuIpcGetMemHandle) {
        const Current current(driver_, context_, context_id_);
        const Relaxed relaxed(driver_);
        result = current.result() == CUDA_SUCCESS
                     ? driver_.cuIpcGetMemHandle(&made, segment.driver_base)
                     : current.result();
    }
    if (result != CUDA_SUCCESS) {
        return served_.failed(result, "cuIpcGetMemHandle");
    }
    handle.kind = EMM_IPC_LEGACY;
    std::memcpy(handle.handle, &made, sizeof handle.handle);
    handle.offset = ptr - segment.driver_base;
    handle.size = size;
    handle.exported_size = segment.driver_bytes;
    return EMM_OK;
}

// The host lets go of the pages before somebody else may have them.
emm_status Manager::release_ipc_handle(const emm_ipc_handle *handle) {
    if (handle->kind == EMM_IPC_FILE_DESCRIPTOR && paged_ && pages_shareable_) {
        const emm_status status = host_.withdraw_ipc(served_.emm, handle);
        if (status != EMM_OK) {
            return status;
        }
    }
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
    order_.end_export(lock, record);
    check();
    return EMM_OK;
}

} // namespace emm::pool

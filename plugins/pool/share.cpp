// Memory that other processes have open. An allocation that is freed while it is exported waits
// with its use record until the last export ends, so neither a trim nor another allocation gets at
// it, and the memory behind it stays.
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
    const ExportedRange range = backing_->range_of(segment, ptr, size);
    std::list<Export> made(1); // so that nothing can fail once the export is there
    UseRecord &record = order_.begin_export(place);
    made.front().record = &record;
    emm_ipc_handle &handle = made.front().handle;
    lock.unlock();
    const emm_status status = backing_->serve(range, handle);
    lock.lock();
    if (status != EMM_OK) {
        order_.end_export(lock, record);
        return status;
    }
    *ret_handle = handle;
    exports_.splice(exports_.end(), made);
    return EMM_OK;
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

emm_status Manager::release_ipc_handle(const emm_ipc_handle *handle) {
    const emm_status withdrawn = backing_->withdraw(*handle);
    if (withdrawn != EMM_OK) {
        return withdrawn;
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

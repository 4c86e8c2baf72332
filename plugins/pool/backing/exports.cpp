#include "exports.h"

#include <algorithm>
#include <cstring>

namespace emm::pool {
namespace {

bool is_same(const emm_ipc_handle &a, const emm_ipc_handle &b) {
    return a.kind == b.kind && a.offset == b.offset && a.size == b.size &&
           std::memcmp(a.handle, b.handle, sizeof a.handle) == 0;
}

} // namespace

emm_status Exports::begin(emm_deviceptr ptr, size_t size, emm_ipc_handle &ret_handle) {
    Lock lock(order_.context().mutex);
    const BlockOrSlot allocation = heap_.around(ptr);
    if (!allocation || allocation.segment().spilled() || is_hidden(allocation) ||
        size > allocation.begin() + allocation.requested() - ptr) {
        lock.unlock();
        return refuse(ptr, size, allocation);
    }
    const ExportedRange range = backing_.range_of(allocation.segment(), ptr, size);
    std::list<Export> made(1); // made first, so that nothing can fail once the export exists
    UseRecord &record = order_.begin_export(allocation);
    made.front().record = &record;
    made.front().range = {ptr, ptr + size};
    emm_ipc_handle &handle = made.front().handle;
    emm_status status = EMM_OK;
    {
        const Unlocked unlocked(lock);
        status = backing_.serve(range, handle);
    }
    if (status != EMM_OK) {
        order_.end_export(lock, record);
        return status;
    }
    ret_handle = handle;
    exports_.splice(exports_.end(), made);
    return EMM_OK;
}

std::vector<Range> Exports::ranges() const {
    std::vector<Range> all;
    for (const Export &each : exports_) {
        all.push_back(each.range);
    }
    return all;
}

// With ipc=dedicated no other process sees a segment that several allocations share.
bool Exports::is_hidden(BlockOrSlot allocation) const {
    return options_.dedicated && allocation.segment().zone != Zone::dedicated;
}

emm_status Exports::refuse(emm_deviceptr ptr, size_t size, BlockOrSlot allocation) const {
    if (!allocation) {
        return emm_failf(&order_.context().host, EMM_E_NOT_OWNED, 0,
                         "pool: 0x%llx is not in a live allocation of this manager", ptr);
    }
    if (allocation.segment().spilled()) {
        return emm_failf(&order_.context().host, EMM_E_NOT_SUPPORTED, 0,
                         "pool: no export of 0x%llx: it was spilled to host memory, which no other "
                         "process can open",
                         ptr);
    }
    if (is_hidden(allocation)) {
        return emm_failf(&order_.context().host, EMM_E_NOT_SUPPORTED, 0,
                         "pool: no export of an allocation below %llu bytes, because it shares its "
                         "segment; ipc=shared, or a smaller dedicated_from, allows the export",
                         static_cast<unsigned long long>(options_.dedicated_from));
    }
    return emm_failf(
        &order_.context().host, EMM_E_INVALID_VALUE, 0,
        "pool: an export's size: expected at most the %llu bytes that its allocation "
        "has left, found %zu",
        static_cast<unsigned long long>(allocation.begin() + allocation.requested() - ptr), size);
}

emm_status Exports::end(const emm_ipc_handle &handle) {
    const emm_status withdrawn = backing_.withdraw(handle);
    if (withdrawn != EMM_OK) {
        return withdrawn;
    }
    Lock lock(order_.context().mutex);
    const auto found = std::find_if(exports_.begin(), exports_.end(), [&](const Export &each) {
        return is_same(each.handle, handle);
    });
    if (found == exports_.end()) {
        lock.unlock();
        return order_.context().host.fail(EMM_E_NOT_OWNED, 0,
                                          "pool: the IPC handle is not an export of this manager");
    }
    UseRecord &record = *found->record;
    exports_.erase(found);
    order_.end_export(lock, record);
    return EMM_OK;
}

} // namespace emm::pool

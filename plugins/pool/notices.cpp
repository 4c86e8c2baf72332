// Notices from the program: about its streams, and about further streams that use an allocation.
#include "manager.h"

#include "slow_call.h"

namespace emm::pool {

// No lock is held. If the stream captures, its capture has been entered.
emm_status Manager::identify(emm_stream stream, Caller &ret_caller) {
    const emm_status status = order_.identify(stream, ret_caller);
    if (status == EMM_OK && ret_caller.invalidated) {
        return host_.fail(EMM_E_CAPTURING, 0,
                          "pool: the stream's capture has been invalidated; end it first");
    }
    return status == EMM_OK && ret_caller.capturing ? order_.enter_capture(ret_caller) : status;
}

// The lock is held.
StreamPool &Manager::pool_of(const Caller &caller) {
    if (caller.is_own_stream()) {
        Thread::remember_own_stream(order_.number());
    }
    return order_.pool_of(caller);
}

emm_status Manager::stream_notice(emm_stream stream, uint32_t notice) {
    const SlowCall call(served_.driver, caches_);
    switch (notice) {
    case EMM_STREAM_REGISTERED:
        return order_.enter_stream(stream);
    case EMM_STREAM_RETIRING:
        return order_.retire_stream(stream);
    case EMM_STREAM_CAPTURE_BEGINS:
        order_.begin_capture(stream);
        return EMM_OK;
    case EMM_STREAM_CAPTURE_ENDS:
        order_.end_capture(stream);
        return EMM_OK;
    default:
        return EMM_OK; // a notice of a later version
    }
}

emm_status Manager::record_use(emm_deviceptr ptr, size_t, emm_stream stream) {
    Caller caller;
    const emm_status status = identify(stream, caller);
    if (status != EMM_OK) {
        return status;
    }
    Lock lock(served_.mutex);
    BlockOrSlot allocation = allocation_at(ptr);
    // Mapped pinned memory has one address for both sides.
    allocation = allocation ? allocation : pinned_.allocation_at(ptr);
    if (!allocation) {
        lock.unlock();
        return emm_failf(
            &host_, EMM_E_NOT_OWNED, 0,
            "pool: record_use of 0x%llx: no live allocation of this manager begins there", ptr);
    }
    const bool on_a_stream = caller.kind != StreamKind::none;
    order_.record_use(lock, allocation, caller, on_a_stream ? &pool_of(caller) : nullptr);
    return EMM_OK;
}

} // namespace emm::pool

// Pause and resume: device memory leaves its addresses, and comes back to them.
#include "manager.h"

#include "slow_call.h"

namespace emm::pool {

emm_status Manager::refuse_paused(const char *slot) {
    if (!served_.serves()) {
        return served_.failed(served_.lost(), "an earlier call");
    }
    return emm_failf(&host_, EMM_E_PAUSED, 0,
                     "pool: %s while the pool is paused: resume it first, or give it the option "
                     "when_paused=wait",
                     slot);
}

emm_status Manager::pause(uint32_t flags, size_t *ret_released) {
    PauseRequest request;
    request.keeps = (flags & EMM_PAUSE_KEEP) != 0;
    if (!backing_->can_pause(request.keeps)) {
        return host_.fail(EMM_E_NOT_SUPPORTED, 0,
                          "pool: a pause needs growth=vmm, which keeps addresses without memory");
    }
    const SlowCall call(served_.driver, caches_);
    const Current current = served_.make_current();
    if (current.result() != CUDA_SUCCESS) {
        return served_.failed(current.result(), "cuCtxPushCurrent");
    }
    Lock lock(served_.mutex);
    if (pause_.is_paused()) {
        *ret_released = 0;
        return EMM_S_IGNORED;
    }
    request.exported = exports_.ranges();
    request.most_pinned = options_.host_max - std::min(options_.host_max, pinned_.reserved());
    if (moves_.returns_are_deferred() ||
        ((flags & EMM_PAUSE_UNSHARED) && !request.exported.empty())) {
        const bool deferred = moves_.returns_are_deferred();
        lock.unlock();
        return emm_failf(&host_, EMM_E_BUSY, 0, "pool: no pause %s",
                         deferred ? "inside a deferred section"
                                  : "while other processes may have its memory open");
    }
    const uint64_t before = holdings_.held();
    const CUresult result = pause_backing(lock, request);
    const bool captures = order_.has_announced_captures();
    const uint64_t held = holdings_.held();
    lock.unlock();
    if (result == CUDA_SUCCESS) {
        check_unlocked();
        *ret_released = before - std::min(before, held);
        return EMM_OK;
    }
    if (captures) {
        return host_.fail(EMM_E_CAPTURING, 0, "pool: no pause while a stream captures");
    }
    if (result == CUDA_ERROR_OUT_OF_MEMORY) {
        return host_.fail(EMM_E_OUT_OF_HOST_MEMORY, result,
                          "pool: no host memory for the copy of what is paused");
    }
    return served_.failed(result, "a driver call of a pause");
}

// Threads keep nothing, and all that was freed is complete, before the backing begins.
CUresult Manager::pause_backing(Lock &lock, const PauseRequest &request) {
    PauseState::Change change(lock, pause_);
    const ThreadCaches::Search whole_blocks(lock, caches_);
    order_.collect_graphs();
    caches_.drain_all();
    order_.reserve_event();
    if (!order_.wait_for_context(lock)) {
        return served_.serves() ? CUDA_ERROR_UNKNOWN : served_.lost();
    }
    caches_.give_up_waiting_blocks();
    drop_spares();
    const CUresult result = backing_->pause(lock, request);
    served_.note_error(result);
    change.ends_paused(result == CUDA_SUCCESS);
    return result;
}

emm_status Manager::resume(uint32_t flags) {
    const bool keeps_copy = (flags & EMM_RESUME_KEEP_COPY) != 0;
    const SlowCall call(served_.driver, caches_);
    const Current current = served_.make_current();
    if (current.result() != CUDA_SUCCESS) {
        return served_.failed(current.result(), "cuCtxPushCurrent");
    }
    CUresult result = served_.lost();
    uint64_t bytes = 0;
    {
        Lock lock(served_.mutex);
        if (!pause_.is_paused()) {
            lock.unlock();
            keeps_copy ? void() : backing_->drop_copy();
            return EMM_OK;
        }
        if (result == CUDA_SUCCESS) {
            PauseState::Change change(lock, pause_);
            order_.record_and_query_all(lock, false);
            order_.record_what_is_left(lock);
            result = backing_->resume(lock, keeps_copy);
            change.ends_paused(result != CUDA_SUCCESS);
        }
        bytes = holdings_.paused();
    }
    if (result == CUDA_SUCCESS) {
        check_unlocked();
        return EMM_OK;
    }
    if (result == CUDA_ERROR_OUT_OF_MEMORY) {
        return emm_failf(&host_, EMM_E_OUT_OF_MEMORY, result,
                         "pool: no device memory for the %llu bytes that are paused; they stay so",
                         static_cast<unsigned long long>(bytes));
    }
    return served_.failed(result, "a driver call of a resume");
}

} // namespace emm::pool

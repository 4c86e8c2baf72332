// Pause and resume: device memory leaves its addresses, and comes back to them.
#include "manager.h"

#include "slow_call.h"

#include <algorithm>

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
    if (!backing_->can_pause((flags & EMM_PAUSE_KEEP) != 0)) {
        return host_.fail(EMM_E_NOT_SUPPORTED, 0,
                          "pool: a pause needs growth=vmm, which keeps addresses without memory");
    }
    const std::lock_guard copying(copy_mutex_);
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
    const CUresult result = pause_backing(lock, flags, ret_released);
    const bool captures = order_.has_announced_captures();
    lock.unlock();
    if (result == CUDA_SUCCESS) {
        check_unlocked();
        return EMM_OK;
    }
    if (captures) {
        return host_.fail(EMM_E_CAPTURING, 0, "pool: no pause while a stream captures");
    }
    if (result == CUDA_ERROR_NOT_PERMITTED) {
        return host_.fail(EMM_E_BUSY, 0, "pool: no pause inside a deferred section");
    }
    return served_.failed(result, "a driver call of a pause");
}

// Before the backing begins, threads keep nothing, and all freed memory is complete. From then on
// no export can begin, but a deferred section can: the backing checks that again.
CUresult Manager::pause_backing(Lock &lock, uint32_t flags, size_t *ret_released) {
    if (order_.has_announced_captures()) {
        return CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED;
    }
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
    if ((flags & EMM_PAUSE_UNSHARED) && exports_.any()) {
        throw PluginError(EMM_E_BUSY, 0, "pool: no pause while its memory is exported");
    }
    if (moves_.returns_are_deferred()) {
        return CUDA_ERROR_NOT_PERMITTED;
    }
    const uint64_t before = holdings_.held();
    const CUresult result = copy_and_pause(lock, (flags & EMM_PAUSE_KEEP) != 0);
    served_.note_error(result);
    if (result == CUDA_SUCCESS) {
        change.ends_paused(true);
        *ret_released = before - std::min(before, holdings_.held());
    }
    return result;
}

// After a failure, the copy is as it was before.
CUresult Manager::copy_and_pause(Lock &lock, bool keeps) {
    const size_t chunks = copy_.chunks();
    CUresult result = no_memory_of_pool;
    try {
        result = backing_->pause(lock, {keeps, exports_.ranges()}, copy_);
    } catch (const std::bad_alloc &) {
    }
    if (result != CUDA_SUCCESS) {
        const Unlocked unlocked(lock);
        copy_.release(chunks);
    }
    if (result == no_memory_of_pool) {
        throw PluginError(EMM_E_OUT_OF_HOST_MEMORY, 0,
                          "pool: no host memory for the copy of what is paused");
    }
    return result;
}

// In a deferred section the copy's memory stays until the section's end, or a trim after it.
void Manager::release_idle_copy(std::unique_lock<std::mutex> copying) {
    if (!copying || !copy_is_idle_) {
        return;
    }
    {
        const Lock lock(served_.mutex);
        if (!pause_.is_open() || moves_.returns_are_deferred()) {
            return;
        }
    }
    copy_.release();
    copy_is_idle_ = copy_.chunks() > 0;
}

emm_status Manager::resume(uint32_t flags) {
    const bool keeps_copy = (flags & EMM_RESUME_KEEP_COPY) != 0;
    std::unique_lock copying(copy_mutex_);
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
            copy_is_idle_ = copy_is_idle_ || !keeps_copy;
            release_idle_copy(std::move(copying));
            return EMM_S_IGNORED;
        }
        if (result == CUDA_SUCCESS) {
            PauseState::Change change(lock, pause_);
            order_.record_and_query_all(lock, false);
            order_.record_what_is_left(lock);
            result = backing_->resume(lock, copy_);
            change.ends_paused(result != CUDA_SUCCESS);
        }
        bytes = holdings_.paused();
    }
    if (result == CUDA_SUCCESS) {
        copy_is_idle_ = !keeps_copy;
        release_idle_copy(std::move(copying));
        check_unlocked();
        return EMM_OK;
    }
    if (result == CUDA_ERROR_OUT_OF_MEMORY) {
        return emm_failf(&host_, EMM_E_OUT_OF_MEMORY, result,
                         "pool: no device memory for the %llu paused bytes, which stay paused",
                         static_cast<unsigned long long>(bytes));
    }
    return served_.failed(result, "a driver call of a resume");
}

// The copy changes in a pause and a resume alone, and emm makes none of them meanwhile. Spilled and
// exported memory stays where it is.
emm_status Manager::read_paused(emm_deviceptr ptr, size_t size, void *host) {
    const Range range{ptr, ptr + std::min<uint64_t>(size, UINT64_MAX - ptr)};
    {
        const Lock lock(served_.mutex);
        if (!pause_.is_paused() || memory_.heap.is_mapped(range.begin, range.end)) {
            return EMM_S_IGNORED;
        }
    }
    if (range.bytes() == size && copy_.read(range, static_cast<char *>(host))) {
        return EMM_OK;
    }
    return emm_failf(&host_, EMM_E_NOT_OWNED, 0,
                     "pool: the pause has not kept the content of the %zu bytes at %#llx", size,
                     ptr);
}

} // namespace emm::pool

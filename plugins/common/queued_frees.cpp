#include "common/queued_frees.h"

namespace emm::common {

QueuedFrees::QueuedFrees(const char *name, const emm_host &host, const emm_context_info &info,
                         uint64_t most_bytes)
    : name_(name), state_(std::make_shared<State>(host, most_bytes)), host_(host),
      context_(info.context), cuda_context_(info.cuda_context), context_id_(info.context_id),
      device_(info.device) {}

bool QueuedFrees::State::take_room(uint64_t size) noexcept {
    uint64_t taken = taken_bytes;
    do {
        if (size > most_bytes || taken > most_bytes - size) {
            return false;
        }
    } while (!taken_bytes.compare_exchange_weak(taken, taken + size));
    return true;
}

CUresult QueuedFrees::State::give_back(LiveAllocations::Entry entry) {
    const RelaxedCapture relaxed(driver);
    taken_bytes -= entry.mapped();
    const CUresult result = driver.cuMemFree(entry.key());
    if (is_returned(result)) {
        allocations.returned(entry.mapped());
    } else {
        taken_bytes += entry.mapped();
        allocations.keep_refused(std::move(entry));
    }
    return result;
}

// For memory that ended with its context.
void QueuedFrees::State::forget(size_t size) noexcept {
    taken_bytes -= size;
    allocations.returned(size);
}

void QueuedFrees::fail(CUresult result, const char *entry, size_t size) const {
    char what[64];
    snprintf(what, sizeof what, "%s of %zu bytes", entry, size);
    state_->allocations.failed();
    state_->driver.fail(result, what);
}

void QueuedFrees::fail_beyond_max() const {
    state_->allocations.failed();
    refuse(EMM_E_OUT_OF_MEMORY, "%s: %llu bytes taken, max %llu", name_,
           static_cast<unsigned long long>(state_->taken_bytes),
           static_cast<unsigned long long>(state_->most_bytes));
}

emm_status QueuedFrees::memfree(emm_deviceptr ptr, size_t size, emm_stream stream) {
    Pending pending = take(ptr, size, stream);
    return pending ? queue(std::move(pending)) : EMM_OK;
}

QueuedFrees::Pending QueuedFrees::take(emm_deviceptr ptr, size_t size, emm_stream stream) {
    queue_what_can_go();
    state_->driver.expect_own(cuda_context_, stream);
    auto pending = std::make_unique<PendingFree>(PendingFree{state_, {}});
    const Capture capture = capture_of(state_->driver, stream);
    pending->beside_capture = capture.active;
    pending->entry = state_->allocations.take(ptr, size);
    if (pending->entry.empty()) {
        state_->allocations.refuse_free(name_, ptr, size);
    }
    if (capture.graph) {
        hold(capture.graph, pending->entry);
    }
    return pending->entry.empty() ? nullptr : std::move(pending);
}

void QueuedFrees::hold(CUgraph graph, LiveAllocations::Entry &entry) {
    try {
        graphs_.hold(state_->driver, graph, entry);
    } catch (...) {
        state_->allocations.put_back(std::move(entry));
        throw;
    }
}

emm_status QueuedFrees::queue(Pending pending, bool is_whole) {
    const size_t size = pending->entry.mapped();
    const emm_status status = host_.defer(context_, &PendingFree::run, pending.get(), size);
    if (status >= EMM_OK) {
        pending.release(); // the queue owns it from here on, and may have run it
        return EMM_OK;
    }
    if (is_whole) {
        state_->allocations.put_back(std::move(pending->entry));
        return status;
    }
    const bool alive = state_->driver.is_alive(cuda_context_, context_id_);
    PendingFree::run(pending.release(), alive ? EMM_DEFERRED_RUN : EMM_DEFERRED_DROP);
    return EMM_OK;
}

// Frees the memory of graphs that are gone, and retries one free that the driver has refused.
void QueuedFrees::queue_what_can_go() {
    queue_or_free(state_->allocations.take_refused());
    while (graphs_.has_released()) {
        queue_or_free(graphs_.take_released());
    }
}

// No caller will free this memory again, so if the queue has no room, it is freed at once.
void QueuedFrees::queue_or_free(LiveAllocations::Entry entry) {
    if (entry.empty()) {
        return;
    }
    const size_t size = entry.mapped();
    PendingFree *const it = new (std::nothrow) PendingFree{state_, {}};
    if (!it) {
        state_->give_back(std::move(entry));
        return;
    }
    it->entry = std::move(entry);
    if (host_.defer(context_, &PendingFree::run, it, size) < EMM_OK) {
        PendingFree::run(it, EMM_DEFERRED_RUN);
    }
}

// In a thread whose capture mode is global, cuMemFree would invalidate captures of other streams.
emm_status QueuedFrees::PendingFree::run(void *argument, uint32_t what) {
    const std::unique_ptr<PendingFree> self(static_cast<PendingFree *>(argument));
    if (what != EMM_DEFERRED_RUN) {
        self->state->forget(self->entry.mapped());
        return EMM_OK;
    }
    const emm_deviceptr ptr = self->entry.key();
    const CUresult result = self->state->give_back(std::move(self->entry));
    if (result == CUDA_SUCCESS || is_late(result)) {
        return EMM_OK;
    }
    return emm_failf(&self->state->host, EMM_E_DRIVER, static_cast<int32_t>(result),
                     "cuMemFree of 0x%llx failed: %s (%d)", ptr,
                     cuda::error_name(self->state->driver, result), static_cast<int>(result));
}

emm_status QueuedFrees::reset() {
    drop_all();
    return EMM_OK;
}

// Pending frees are no longer ours: emm has run them before. If the context died, its addresses may
// belong to other allocations by now. The second try is for what the driver has refused in the
// first, because no later call may come.
void QueuedFrees::drop_all() noexcept {
    const bool alive = state_->driver.is_alive(cuda_context_, context_id_);
    const auto drop = [&](LiveAllocations::Entry entry) {
        if (alive) {
            state_->give_back(std::move(entry));
        } else {
            state_->forget(entry.mapped());
        }
    };
    for (LiveAllocations::Entry entry = graphs_.take_any(); !entry.empty();
         entry = graphs_.take_any()) {
        drop(std::move(entry));
    }
    for (int tries = 0; tries < 2; ++tries) {
        LiveAllocations::Allocations all = state_->allocations.take_all();
        while (!all.empty()) {
            drop(all.extract(all.begin()));
        }
    }
}

// Nothing is cached. emm runs the queue after this call.
emm_status QueuedFrees::trim(size_t, size_t *ret_released) {
    queue_what_can_go();
    *ret_released = 0;
    return EMM_OK;
}

emm_status QueuedFrees::query(emm_deviceptr ptr, emm_block_info *ret_info) {
    const emm_block_info info = state_->allocations.at(ptr, name_, device_);
    emm_copy_sized(ret_info, &info);
    return EMM_OK;
}

// cuMemFree waits for every stream, so no use needs to be remembered.
emm_status QueuedFrees::record_use(emm_deviceptr ptr, size_t, emm_stream) {
    state_->allocations.at(ptr, name_, device_); // throws
    return EMM_OK;
}

emm_status QueuedFrees::get_stats(emm_stats *ret_stats) {
    emm_stats stats;
    state_->allocations.fill(stats);
    emm_copy_sized(ret_stats, &stats);
    return EMM_OK;
}

emm_status QueuedFrees::reset_peaks() {
    state_->allocations.reset_peaks();
    return EMM_OK;
}

} // namespace emm::common

#pragma once

#include "common/exports.h"
#include "common/graph_hold.h"
#include "common/returns.h"
#include "common/stream_ordered.h"

#include <algorithm>
#include <utility>

namespace emm::common {

// A manager whose memory comes from a source that allocates and frees it on streams. In three
// cases a source alone is not enough:
//
//   - Memory for any stream (EMM_STREAM_UNORDERED) is allocated on a private stream, `supply`, and
//     waited for: an allocation there takes no device time.
//   - Memory that may be in use anywhere is freed on another private stream, `returns`, which
//     waits for an event recorded on the whole context (cuCtxRecordEvent, CUDA 12.5; before that
//     the calling thread waits). Plain cuMemFree would not wait: it does not for memory of a pool.
//     Memory that record_use has announced on other streams is freed in the same way.
//   - On a stream that captures, an allocation could become a node of the graph, and the memory
//     the graph's. It is allocated like memory for any stream instead, outside the capture, and a
//     free on that stream takes effect when the graph is gone (graph_hold.h). An event on the
//     context would invalidate captures, so unordered frees are postponed while a capture is
//     announced. They take effect after its end, in the next call that emm.h forbids beside an
//     unannounced capture; or behind a wait for the device, in a trim or before a request fails.
//
// The stream that a call names must be alive, because every driver function crashes on the handle
// of a destroyed stream. So the manager remembers no stream from one call to the next.
//
// A Source has
//   Entries                          what it needs of the driver, a StreamDriver
//   allocate(size, stream, &ptr)     a CUresult; or throws
//   fail(result, size)               throws, and says which allocation failed
//   free(ptr, size, stream)          the same two, and
//   freeing                          what to call a free that failed
//   keeps_freed                      whether a deferred section may free: the driver gets nothing
//   free_after_context(ptr, size)    the context has died, and its streams with it
//   return_unused()                  a request has failed: what was taken for it may go
//   trim(keep_bytes)                 how much of its cache went
// The most derived class calls end() in its destructor.
template <class Source> class SourceManager : public StreamOrdered<typename Source::Entries> {
    using Base = StreamOrdered<typename Source::Entries>;

public:
    emm_status memalloc(size_t size, emm_stream stream, emm_deviceptr *ret_ptr) {
        if (stream == EMM_STREAM_UNORDERED) {
            release_postponed();
        }
        Entry entry = LiveAllocations::make_entry(size);
        CUdeviceptr ptr = 0;
        const RelaxedCapture relaxed(driver_);
        try {
            const CUresult result = allocate_or_reclaim(size, stream, &ptr);
            if (result != CUDA_SUCCESS) {
                source_.fail(result, size);
            }
        } catch (...) {
            allocations_.failed();
            throw;
        }
        allocations_.add(std::move(entry), ptr);
        *ret_ptr = ptr;
        return EMM_OK;
    }

    emm_status memfree(emm_deviceptr ptr, size_t size, emm_stream stream) {
        if (stream == EMM_STREAM_UNORDERED) {
            release_postponed();
        }
        this->take_back(ptr, size, [&](Entry &entry, bool is_used_elsewhere) {
            release(entry, stream, is_used_elsewhere);
        });
        return EMM_OK;
    }

    emm_status reset() {
        const RelaxedCapture relaxed(driver_);
        const bool alive = is_alive();
        if (alive) {
            driver_.check(order_frees(), "ordering a reset behind all work of the context");
        }
        drop_all(alive);
        return EMM_OK;
    }

    emm_status trim(size_t keep_bytes, size_t *ret_released) {
        if (sections_ != 0) {
            *ret_released = 0;
            return EMM_OK;
        }
        bool are_under_way = release_postponed();
        are_under_way = release_beside_captures() || are_under_way;
        const RelaxedCapture relaxed(driver_);
        if (are_under_way) {
            driver_.cuStreamSynchronize(returns_); // so that the trim finds this memory free
        }
        *ret_released = source_.trim(keep_bytes);
        return EMM_OK;
    }

protected:
    using Base::allocations_;
    using Base::driver_;
    using Base::sections_;
    using typename Base::Allocations;
    using typename Base::Entry;

    template <class... Arguments>
    SourceManager(const char *name, const emm_host &host, const emm_context_info &info,
                  Arguments &&...arguments)
        : Base(name, host, info), most_bytes_(this->device_memory().second),
          source_(driver_, std::forward<Arguments>(arguments)...) {}

    // The memory goes back even if the wait fails: the program has ended all work that uses it, and
    // no later call could try again.
    void end() noexcept {
        const RelaxedCapture relaxed(driver_);
        const bool alive = is_alive();
        if (alive) {
            order_frees();
        }
        drop_all(alive);
    }

    // Frees memory whose capture or graph has ended. A free that must wait again, or fails, is
    // postponed again. Only calls that may record an event on the context may call this: the event
    // would invalidate an unannounced capture. Returns whether there may be frees on `returns`.
    bool release_postponed() noexcept {
        if (holds_frees() || !(has_postponed_ || graphs_.has_released())) {
            return false;
        }
        const Returns::Scope returning(under_way_);
        if (has_postponed_ && !wait_.is_capturing()) {
            Allocations postponed = this->take_postponed();
            while (!postponed.empty()) {
                release_or_postpone(postponed.extract(postponed.begin()));
            }
        }
        while (graphs_.has_released()) {
            if (Entry entry = graphs_.take_released();
                !entry.empty() && !exports_.hold_back(entry)) {
                release_or_postpone(std::move(entry));
            }
        }
        return true;
    }

    // Frees memory that a capture or a deferred section has put off. This waits for the device.
    // The result is that of release_postponed.
    bool release_beside_captures() noexcept {
        if (holds_frees() || !has_postponed_ || !is_alive()) {
            return false;
        }
        const RelaxedCapture relaxed(driver_);
        const Returns::Scope returning(under_way_);
        Allocations postponed = this->take_postponed();
        const bool finished = cuda::wait_beside_captures(driver_) == CUDA_SUCCESS;
        while (!postponed.empty()) {
            Entry entry = postponed.extract(postponed.begin());
            try {
                finished ? give_back(entry, returns_) : this->postpone(entry);
            } catch (...) {
                this->postpone(entry);
            }
        }
        return true;
    }

    bool is_alive() const { return driver_.is_alive(this->cuda_context_, this->context_id_); }

private:
    using Base::has_postponed_;
    using Base::returns_;
    using Base::supply_;
    using Base::wait_;

    bool holds_frees() const { return !Source::keeps_freed && sections_ != 0; }

    CUresult allocate_or_reclaim(size_t size, emm_stream stream, CUdeviceptr *ret_ptr) {
        refuse_what_never_fits(size);
        CUresult result = allocate(size, stream, ret_ptr);
        if (result == CUDA_ERROR_OUT_OF_MEMORY) {
            release_postponed();
            release_beside_captures();
            under_way_.wait();
            if (driver_.cuStreamSynchronize(returns_) == CUDA_SUCCESS) {
                result = allocate(size, stream, ret_ptr);
            }
        }
        if (result != CUDA_SUCCESS && sections_ == 0) {
            source_.return_unused();
        }
        return result;
    }

    // For a request that cannot fit, a pool of the driver would first take all of the device's
    // memory, and keep it. The device's bound may have been raised meanwhile.
    void refuse_what_never_fits(size_t size) {
        const uint64_t live = allocations_.live_bytes();
        if (fits(size, live, most_bytes_)) {
            return;
        }
        const uint64_t most = most_bytes_ = this->device_memory().second;
        if (!fits(size, live, most)) {
            refuse(EMM_E_OUT_OF_MEMORY, "%s: %llu bytes live, and the device has %llu", this->name_,
                   static_cast<unsigned long long>(live), static_cast<unsigned long long>(most));
        }
    }

    static bool fits(size_t size, uint64_t live, uint64_t most) {
        return live <= most && size <= most - live;
    }

    CUresult allocate(size_t size, emm_stream stream, CUdeviceptr *ret_ptr) {
        if (stream == EMM_STREAM_UNORDERED || capture_of(driver_, stream).active) {
            return allocate_for_any(size, ret_ptr);
        }
        return source_.allocate(size, stream, ret_ptr);
    }

    CUresult allocate_for_any(size_t size, CUdeviceptr *ret_ptr) {
        CUdeviceptr ptr = 0;
        CUresult result = source_.allocate(size, supply_, &ptr);
        if (result != CUDA_SUCCESS) {
            return result;
        }
        result = driver_.cuStreamSynchronize(supply_);
        if (result != CUDA_SUCCESS) {
            source_.free(ptr, size, supply_);
            driver_.cuStreamSynchronize(supply_); // so that it can go back
            return result;
        }
        *ret_ptr = ptr;
        return CUDA_SUCCESS;
    }

    // The graph comes first, because its launches use the memory after all other uses. On a
    // failure, which throws, `entry` is unchanged; else it is empty.
    void release(Entry &entry, emm_stream stream, bool used_elsewhere) {
        const Capture capture = capture_of(driver_, stream);
        if (capture.graph) {
            graphs_.hold(driver_, capture.graph, entry);
        }
        if (entry.empty() || exports_.hold_back(entry)) {
            return;
        }
        if (capture.active || holds_frees()) {
            this->postpone(entry);
            return;
        }
        if (used_elsewhere || stream == EMM_STREAM_UNORDERED) {
            release_behind_everything(entry);
            return;
        }
        const RelaxedCapture relaxed(driver_);
        give_back(entry, stream);
    }

    void release_behind_everything(Entry &entry) {
        const RelaxedCapture relaxed(driver_);
        if (!this->wait_for_everything()) {
            this->postpone(entry);
            return;
        }
        give_back(entry, returns_);
    }

    void release_or_postpone(Entry entry) noexcept {
        try {
            release_behind_everything(entry);
        } catch (...) {
            this->postpone(entry);
        }
    }

    void give_back(Entry &entry, CUstream stream) {
        const CUresult result = source_.free(entry.key(), entry.mapped(), stream);
        if (!is_late(result)) {
            driver_.check(result, Source::freeing);
        }
        allocations_.returned(entry.mapped());
        entry = {};
    }

    // Puts the coming frees behind all work that may still use the memory. Tries a second way if
    // the first fails.
    CUresult order_frees() noexcept {
        CUresult result = cuda::wait_beside_captures(driver_);
        for (int tries = 0; tries < 2 && result != CUDA_SUCCESS; ++tries) {
            result = wait_.unless_capturing(returns_);
        }
        return result;
    }

    void drop_all(bool alive) noexcept {
        for (Entry entry = graphs_.take_any(); !entry.empty(); entry = graphs_.take_any()) {
            drop(std::move(entry), alive);
        }
        for (Entry entry = exports_.take_held_back(); !entry.empty();
             entry = exports_.take_held_back()) {
            drop(std::move(entry), alive);
        }
        for (int tries = 0; tries < 2; ++tries) { // no later call may come
            Allocations all = allocations_.take_all();
            all.merge(this->take_postponed());
            while (!all.empty()) {
                drop(all.extract(all.begin()), alive);
            }
        }
        if (alive) {
            driver_.cuStreamSynchronize(returns_); // so that a trim finds all of it free
        }
        this->forget_all_uses();
    }

    void drop(Entry entry, bool alive) noexcept {
        if (!alive) {
            source_.free_after_context(entry.key(), entry.mapped());
        }
        if (!alive || freed_at_once(entry)) {
            allocations_.returned(entry.mapped());
        } else {
            this->postpone(entry); // for a later try
        }
    }

    bool freed_at_once(const Entry &entry) noexcept {
        try {
            return is_returned(source_.free(entry.key(), entry.mapped(), returns_));
        } catch (...) {
            return false;
        }
    }

    std::atomic<uint64_t> most_bytes_; // the device's memory, or its bound, as last read
    GraphHold graphs_;
    Returns under_way_;

protected:
    Exports exports_;
    Source source_;
};

} // namespace emm::common

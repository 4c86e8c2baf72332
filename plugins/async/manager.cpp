// async: the driver's own stream-ordered allocator, cuMemAllocAsync, in a pool of its own.
//
// What is allocated and freed on a stream goes to that stream. Three things need more:
//
//   - Memory for any stream (EMM_STREAM_UNORDERED) is allocated on a private stream, `supply`, and
//     waited for: an allocation there takes no device time.
//   - Memory that may be in use anywhere is freed on another private stream, `returns`, which
//     waits for an event recorded on the whole context (cuCtxRecordEvent, CUDA 12.5; before that
//     the calling thread waits). Plain cuMemFree would not wait: it does not for such memory.
//     Memory that record_use has announced on other streams is freed so, too.
//   - On a stream that captures, cuMemAllocAsync would become a node of the graph, and the memory
//     the graph's. It is allocated like memory for any stream instead, outside the capture, and a
//     free on that stream takes effect when the graph is gone (graph_hold.h). An event on the
//     context would invalidate captures: while one is announced, unordered frees are postponed, to
//     the next call after its end that emm.h forbids beside a capture that is not announced.
//
// The stream that a call carries must live. There is no way to ask: every driver function crashes
// on the handle of a destroyed stream. So no handle is remembered from one call to the next.
#include "async/manager.h"

#include <algorithm>
#include <utility>

namespace emm::async {

using common::Capture;
using common::capture_of;
using common::is_late;
using common::RelaxedCapture;

emm_status Manager::memalloc(size_t size, emm_stream stream, emm_deviceptr *ret_ptr) {
    if (stream == EMM_STREAM_UNORDERED) {
        release_postponed();
    }
    Entry entry = common::LiveAllocations::make_entry(size);
    CUdeviceptr ptr = 0;
    const RelaxedCapture relaxed(driver_);
    refuse_what_never_fits(size);
    CUresult result = allocate(size, stream, &ptr);
    if (result == CUDA_ERROR_OUT_OF_MEMORY) {
        release_postponed();
        if (driver_.cuStreamSynchronize(returns_) == CUDA_SUCCESS) {
            result = allocate(size, stream, &ptr);
        }
    }
    if (result == CUDA_ERROR_OUT_OF_MEMORY) {
        return_unused();
    }
    if (result != CUDA_SUCCESS) {
        char what[64];
        snprintf(what, sizeof what, "cuMemAllocFromPoolAsync of %zu bytes", size);
        allocations_.failed();
        driver_.fail(result, what);
    }
    allocations_.add(std::move(entry), ptr);
    *ret_ptr = ptr;
    return EMM_OK;
}

// The driver would first take all of the device's memory into the pool, and keep it.
void Manager::refuse_what_never_fits(size_t size) {
    const uint64_t live = std::min<uint64_t>(most_bytes_, allocations_.live_bytes());
    if (size > most_bytes_ - live) {
        allocations_.failed();
        common::refuse(EMM_E_OUT_OF_MEMORY,
                       "async: %zu bytes asked for, %llu live, and the device has %llu", size,
                       static_cast<unsigned long long>(live),
                       static_cast<unsigned long long>(most_bytes_));
    }
}

// What the pool has taken for a request that failed in the end is of use to no other.
void Manager::return_unused() noexcept {
    if (sections_ == 0) {
        pool_.try_trim();
    }
}

CUresult Manager::allocate(size_t size, emm_stream stream, CUdeviceptr *ret_ptr) {
    if (stream == EMM_STREAM_UNORDERED || capture_of(driver_, stream).active) {
        return allocate_for_any(size, ret_ptr);
    }
    return pool_.allocate(size, stream, ret_ptr);
}

CUresult Manager::allocate_for_any(size_t size, CUdeviceptr *ret_ptr) {
    CUdeviceptr ptr = 0;
    CUresult result = pool_.allocate(size, supply_, &ptr);
    if (result != CUDA_SUCCESS) {
        return result;
    }
    result = driver_.cuStreamSynchronize(supply_);
    if (result != CUDA_SUCCESS) {
        driver_.cuMemFreeAsync(ptr, supply_);
        return result;
    }
    *ret_ptr = ptr;
    return CUDA_SUCCESS;
}

emm_status Manager::memfree(emm_deviceptr ptr, size_t size, emm_stream stream) {
    if (stream == EMM_STREAM_UNORDERED) {
        release_postponed();
    }
    take_back(ptr, size, [&](Entry &entry, bool is_used_elsewhere) {
        release(entry, stream, is_used_elsewhere);
    });
    return EMM_OK;
}

// The graph comes first: its launches use the memory after all other uses are over. On a failure,
// which throws, `entry` is as it was; else it is empty.
void Manager::release(Entry &entry, emm_stream stream, bool used_elsewhere) {
    const Capture capture = capture_of(driver_, stream);
    if (capture.graph) {
        graphs_.hold(driver_, capture.graph, entry);
    }
    if (entry.empty() || hold_back(entry)) {
        return;
    }
    if (capture.active) {
        postpone(entry);
        return;
    }
    if (used_elsewhere || stream == EMM_STREAM_UNORDERED) {
        release_behind_everything(entry);
        return;
    }
    const RelaxedCapture relaxed(driver_);
    given_back(driver_.cuMemFreeAsync(entry.key(), stream), entry);
}

void Manager::release_behind_everything(Entry &entry) {
    const RelaxedCapture relaxed(driver_);
    if (!wait_for_everything()) {
        postpone(entry);
        return;
    }
    given_back(driver_.cuMemFreeAsync(entry.key(), returns_), entry);
}

void Manager::given_back(CUresult result, Entry &entry) {
    if (!is_late(result)) {
        driver_.check(result, "cuMemFreeAsync");
    }
    allocations_.returned(entry.mapped());
    entry = {};
}

// Frees what the end of a capture, or of a graph, has made free. What has to wait once more, or
// fails, is postponed again. Only for calls that may record an event on the context: it would
// invalidate a capture that is not announced.
void Manager::release_postponed() noexcept {
    const auto release_or_postpone = [this](Entry entry) {
        try {
            release_behind_everything(entry);
        } catch (...) {
            postpone(entry);
        }
    };
    if (has_postponed_ && !wait_.is_capturing()) {
        Allocations postponed = take_postponed();
        while (!postponed.empty()) {
            release_or_postpone(postponed.extract(postponed.begin()));
        }
    }
    while (graphs_.has_released()) {
        if (Entry entry = graphs_.take_released(); !entry.empty() && !hold_back(entry)) {
            release_or_postpone(std::move(entry));
        }
    }
}

} // namespace emm::async

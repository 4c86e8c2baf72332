// Growth by segments: the driver calls.
#include "segments.h"

#include "cuda/relaxed.h"

#include <cstring>

namespace emm::pool {

CUresult Segments::add(Lock &lock, uint64_t bytes, Zone zone) {
    if (!context_.serves()) {
        return context_.lost();
    }
    if (!holdings_.has_room_for(bytes)) {
        return no_memory_of_pool;
    }
    CUresult result = CUDA_SUCCESS;
    std::unique_ptr<Segment> segment;
    {
        const Holdings::Arrival arrival(holdings_, bytes);
        const Moves::Move move(moves_);
        const Unlocked unlocked(lock);
        segment = allocate(bytes, result);
    }
    context_.note_error(result);
    if (!segment) {
        return result;
    }
    holdings_.add(bytes);
    ragged_ = ragged_ || segment->size != segment->driver_bytes;
    segment->zone = zone;
    heap_.add(*segment.release());
    return CUDA_SUCCESS;
}

// No lock is held. The driver aligns memory of these sizes to 2 MiB; should it not, the ragged ends
// are left out.
std::unique_ptr<Segment> Segments::allocate(uint64_t bytes, CUresult &result) {
    const Relaxed relaxed(driver_);
    CUdeviceptr base = 0;
    result = relaxed.result() == CUDA_SUCCESS ? driver_.cuMemAlloc(&base, bytes) : relaxed.result();
    if (result != CUDA_SUCCESS) {
        return nullptr;
    }
    try {
        const uint64_t first = round_up(base, segment_granule);
        const uint64_t last = (base + bytes) / segment_granule * segment_granule;
        if (first >= last) {
            driver_.cuMemFree(base);
            result = no_memory_of_pool;
            return nullptr;
        }
        auto segment = std::make_unique<Segment>(base, bytes, first, last - first);
        const Lock lock(context_.mutex);
        heap_.prepare(*segment);
        return segment;
    } catch (...) {
        driver_.cuMemFree(base);
        throw;
    }
}

// cuMemFree itself waits for work that uses the memory, so a whole segment may still be dirty.
void Segments::release(Lock &lock, Segment &segment) {
    heap_.remove(segment);
    caches_.await_lookups();
    const Moves::Move move(moves_);
    const Unlocked unlocked(lock);
    give_back(segment);
}

// If the driver refuses to free a segment, the pool keeps it and tries again later. No lock is
// held.
void Segments::give_back(Segment &segment) {
    CUresult result = CUDA_SUCCESS;
    if (context_.lives()) {
        const Relaxed relaxed(driver_);
        result = driver_.cuMemFree(segment.driver_base);
    }
    context_.note_error(result);
    const Lock lock(context_.mutex);
    if (is_returned(result) || is_gone(result)) {
        holdings_.remove(segment.driver_bytes);
        delete &segment;
    } else {
        refused_.push_back(segment);
    }
}

void Segments::give_back(List<Segment, &Segment::all> segments) {
    {
        const Lock lock(context_.mutex);
        while (Segment *segment = refused_.pop_front()) {
            segments.push_back(*segment);
        }
    }
    while (Segment *segment = segments.pop_front()) {
        give_back(*segment);
    }
}

bool Segments::return_refused(Lock &lock) {
    if (refused_.empty() || moves_.returns_are_deferred()) {
        return false;
    }
    const Moves::Move move(moves_);
    const Unlocked unlocked(lock);
    give_back(List<Segment, &Segment::all>());
    return true;
}

// --- other processes and devices ----------------------------------------------------------------

ExportedRange Segments::range_of(const Segment &segment, uint64_t begin, uint64_t size) const {
    return {begin - segment.driver_base, size, segment.driver_base, segment.driver_bytes, {}};
}

// CUDA's legacy handle names the whole segment.
emm_status Segments::serve(const ExportedRange &range, emm_ipc_handle &ret_handle) {
    CUipcMemHandle made;
    CUresult result = CUDA_ERROR_NOT_SUPPORTED;
    if (driver_.cuIpcGetMemHandle) {
        const Current current = context_.make_current();
        const Relaxed relaxed(driver_);
        result = current.result() == CUDA_SUCCESS ? driver_.cuIpcGetMemHandle(&made, range.base)
                                                  : current.result();
    }
    if (result != CUDA_SUCCESS) {
        return context_.failed(result, "cuIpcGetMemHandle");
    }
    ret_handle.kind = EMM_IPC_LEGACY;
    std::memcpy(ret_handle.handle, &made, sizeof ret_handle.handle);
    ret_handle.offset = range.offset;
    ret_handle.size = range.size;
    ret_handle.exported_size = range.bytes;
    return EMM_OK;
}

emm_status Segments::set_access(int32_t peer, uint32_t flags) {
    return peers_.set_access(peer, flags != EMM_ACCESS_NONE);
}

} // namespace emm::pool

// Pinned memory: growing and giving back.
#include "pinned_memory.h"

#include "cuda/relaxed.h"
#include "policy/effort.h"

#include <algorithm>

namespace emm::pool {

Block *PinnedMemory::grow(Lock &lock, HostPool &pool, uint64_t size, CUresult &result) {
    if (size <= ready_limit && pool.outgrown(size)) {
        ReadyList &list = pool.ready[class_of(size)];
        list.questions = 0;
        list.growths++;
    } else {
        pool.clear_ready();
        if (Block *block = pool.take(size)) {
            return block;
        }
    }
    const uint64_t exact = round_up(host_rounding(size), segment_granule);
    const uint64_t wanted = pinned_bytes(host_rounding(size));
    for (int attempt = 0; attempt < 2; attempt++) {
        const uint64_t extra = pool.ragged ? segment_granule : 0;
        result = add(lock, pool, wanted + extra);
        if (is_exhausted(result) && wanted != exact) {
            result = add(lock, pool, exact + extra);
        }
        Block *block = result == CUDA_SUCCESS ? pool.take(size) : nullptr;
        if (block || result != CUDA_SUCCESS) {
            return block; // NULL if the segment's ends were ragged: try once more
        }
    }
    result = no_memory_of_pool;
    return nullptr;
}

// Gives back idle memory of other sizes and flags. Then waits for all work.
Block *PinnedMemory::reclaim(Lock &lock, HostPool &pool, uint64_t size, CUresult &result) {
    Block *block = nullptr;
    bool others = false; // other threads have given memory back since
    for (int round = 0; round < most_reclaims && !block; round++) {
        const Moves::Watch watch(moves_);
        if (round > 0 && order_.wait_for_context(lock)) {
            cross_context_.wait(lock);
        } else {
            ask(lock, pool, size);
        }
        if (fetch_from_threads()) {
            ask(lock, pool, size);
        }
        pool.clear_ready();
        block = pool.take(size);
        if (!block && !moves_.returns_are_deferred() && (release_idle(lock, 0) > 0 || others)) {
            block = grow(lock, pool, size, result);
        }
        others = !block && round > 0 && context_.serves() && moves_.await(lock, watch);
        if (round > 0 && !others) {
            break;
        }
    }
    return block;
}

CUresult PinnedMemory::add(Lock &lock, HostPool &pool, uint64_t bytes) {
    if (!bound_.claim(bytes)) {
        return no_memory_of_pool;
    }
    reserved_ += bytes;
    CUresult result = CUDA_SUCCESS;
    std::unique_ptr<Segment> segment;
    try {
        const Moves::Move move(moves_);
        const Unlocked unlocked(lock);
        segment = allocate(pool, bytes, result);
    } catch (...) {
        uncount(bytes);
        throw;
    }
    context_.note_error(result);
    if (!segment) {
        uncount(bytes);
        return result;
    }
    pool.ragged = pool.ragged || segment->size != segment->driver_bytes;
    pool.heap.add(*segment.release());
    return CUDA_SUCCESS;
}

// No lock is held. Pages are shared with no other memory: unaligned ends are left out.
std::unique_ptr<Segment> PinnedMemory::allocate(HostPool &pool, uint64_t bytes, CUresult &result) {
    const Relaxed relaxed(driver_);
    void *host = nullptr;
    CUdeviceptr device = 0;
    result = relaxed.result();
    if (result == CUDA_SUCCESS) {
        const HostNode::Preferred near(node_);
        result = driver_.cuMemHostAlloc(&host, bytes, pool.flags);
    }
    if (result == CUDA_SUCCESS && (pool.flags & EMM_HOST_MAPPED)) {
        result = driver_.cuMemHostGetDevicePointer(&device, host, 0);
    }
    const auto base = reinterpret_cast<uintptr_t>(host);
    const uint64_t first = round_up(base, segment_granule);
    const uint64_t last = (base + bytes) / segment_granule * segment_granule;
    std::unique_ptr<Segment> segment;
    try {
        if (result == CUDA_SUCCESS && first < last) {
            segment = std::make_unique<Segment>(base, bytes, first, last - first);
            segment->device_base = device;
            const Lock lock(context_.mutex);
            pool.heap.prepare(*segment);
        } else if (result == CUDA_SUCCESS) {
            const Lock lock(context_.mutex);
            pool.ragged = true;
            result = no_memory_of_pool;
        }
    } catch (...) {
        driver_.cuMemFreeHost(host);
        throw;
    }
    if (!segment && host) {
        driver_.cuMemFreeHost(host);
    }
    return segment;
}

void PinnedMemory::uncount(uint64_t bytes) {
    reserved_ -= bytes;
    bound_.give_back(bytes);
}

// --- back to the driver --------------------------------------------------------------------------

// Gives back whole segments. The device has finished all work on memory in a
// pool's heap, so the driver need not wait.
uint64_t PinnedMemory::release_idle(Lock &lock, uint64_t keep) {
    const uint64_t before = reserved_;
    return_refused(lock);
    for (auto &pool : pools_) {
        if (!pool || moves_.returns_are_deferred() || cached() <= keep) {
            continue;
        }
        pool->clear_ready();
        Segment *segment = pool->heap.first_whole();
        while (segment && cached() > keep) {
            pool->heap.remove(*segment);
            caches_.await_lookups();
            {
                const Moves::Move move(moves_);
                const Unlocked unlocked(lock);
                release(*segment);
            }
            segment = pool->heap.first_whole();
        }
    }
    return before - std::min(before, reserved_);
}

// If the driver refuses to free a segment, the pool keeps it and tries again later. No lock is
// held.
void PinnedMemory::release(Segment &segment) {
    CUresult result = CUDA_SUCCESS;
    if (context_.lives()) {
        const Relaxed relaxed(driver_);
        result = driver_.cuMemFreeHost(reinterpret_cast<void *>(segment.driver_base));
    }
    const Lock lock(context_.mutex);
    if (is_returned(result) || is_gone(result)) {
        uncount(segment.driver_bytes);
        delete &segment;
    } else {
        refused_.push_back(segment);
    }
}

void PinnedMemory::return_refused(Lock &lock) {
    if (!refused_.empty() && !moves_.returns_are_deferred()) {
        const Moves::Move move(moves_);
        const Unlocked unlocked(lock);
        give_back({});
    }
}

List<Segment, &Segment::all> PinnedMemory::forget_all() {
    List<Segment, &Segment::all> all;
    for (auto &pool : pools_) {
        List<Segment, &Segment::all> segments = pool ? pool->forget_all() : decltype(all)();
        while (Segment *segment = segments.pop_front()) {
            all.push_back(*segment);
        }
    }
    live_ = taken_ = waiting_ = 0;
    return all;
}

void PinnedMemory::give_back(List<Segment, &Segment::all> segments) {
    {
        const Lock lock(context_.mutex);
        while (Segment *segment = refused_.pop_front()) {
            segments.push_back(*segment);
        }
    }
    while (Segment *segment = segments.pop_front()) {
        release(*segment);
    }
}

uint64_t PinnedMemory::cached() const {
    const uint64_t busy = taken_ + waiting_;
    return reserved_ > busy ? reserved_ - busy : 0;
}

} // namespace emm::pool

// Pinned host memory: pooled, because pinning costs the driver a millisecond. What was freed is
// handed out again once the CPU has seen its work complete: whoever gets it may write at once.
#include "manager.h"

#include <algorithm>

namespace emm::pool {
namespace {

constexpr uint32_t all_flags = EMM_HOST_PORTABLE | EMM_HOST_MAPPED | EMM_HOST_WRITE_COMBINED;
constexpr uint64_t largest_pinning = uint64_t(1) << 56;
constexpr uint64_t largest_part = 32 << 20;
constexpr uint64_t blocks_a_segment = 8;

bool is_portable(const HostPool &pool) {
    return pool.flags & EMM_HOST_PORTABLE;
}

} // namespace

HostPool &Manager::host_pool(uint32_t flags) {
    auto &pool = hosts_[flags];
    if (!pool) {
        pool = std::make_unique<HostPool>(flags);
        if (is_portable(*pool)) {
            cross_context_.begin();
        }
        known_hosts_[flags].store(pool.get(), std::memory_order_release);
    }
    return *pool;
}

uint64_t Manager::host_cached() const {
    const uint64_t taken = host_taken_ + host_waiting_;
    return host_reserved_ > taken ? host_reserved_ - taken : 0;
}

// --- allocating ----------------------------------------------------------------------------------

emm_status Manager::memhostalloc(size_t size, uint32_t flags, void **ret_host,
                                 emm_deviceptr *ret_device) {
    if ((flags & ~all_flags) != 0 || !driver_.serves_host()) {
        return emm_failf(&host_, EMM_E_NOT_SUPPORTED, 0,
                         "pool: pinned memory with flags 0x%x cannot be had here", flags);
    }
    const HostPool *known_pool = known_hosts_[flags & all_flags].load(std::memory_order_acquire);
    if (Block *block = take_pinned_at_once(known_pool, size)) {
        return answer_host(*block, flags, ret_host, ret_device);
    }
    Lock lock(mutex_);
    HostPool &pool = host_pool(flags);
    Block *block = nullptr;
    if (served_.serves() && size <= largest_pinning) {
        block = pool.take_shelved(size);
    }
    if (!block) {
        lock.unlock();
        if (!served_.serves()) {
            return served_.failed(served_.lost(), "an earlier call");
        }
        CUresult result = CUDA_ERROR_OUT_OF_MEMORY;
        block = size <= largest_pinning ? acquire_host(pool, size, result) : nullptr;
        if (!block) {
            return refuse_host(size, result);
        }
        lock.lock();
    }
    block->state = State::live;
    block->loan.begin(size);
    block->host = &pool;
    host_live_ += size;
    host_taken_ += block->size;
    if (size <= shelf_limit) {
        restock_pinned(pool, size);
    }
    check();
    return answer_host(*block, flags, ret_host, ret_device);
}

emm_status Manager::answer_host(const Block &block, uint32_t flags, void **ret_host,
                                emm_deviceptr *ret_device) {
    const uint64_t begin = block.begin;
    *ret_host = reinterpret_cast<void *>(begin);
    *ret_device = 0;
    if (flags & EMM_HOST_MAPPED) {
        const Segment &segment = *block.segment;
        *ret_device = segment.device_base ? segment.device_base + (begin - segment.driver_base) : 0;
    }
    return EMM_OK;
}

emm_status Manager::refuse_host(size_t size, CUresult result) {
    if (!served_.serves()) {
        return served_.failed(served_.lost(), "a driver call");
    }
    if (result != CUDA_ERROR_OUT_OF_MEMORY) {
        return served_.failed(result, "cuMemHostAlloc");
    }
    unsigned long long live = 0, reserved = 0;
    {
        const Lock lock(mutex_);
        live = host_live();
        reserved = host_reserved_;
    }
    char limit[48] = "no host_max";
    if (options_.host_max != UINT64_MAX) {
        snprintf(limit, sizeof limit, "host_max %llu",
                 static_cast<unsigned long long>(options_.host_max));
    }
    return emm_failf(&host_, EMM_E_OUT_OF_HOST_MEMORY, result,
                     "pool: out of pinned host memory: %zu bytes asked for, %llu live, %llu "
                     "reserved (%s)",
                     size, live, reserved, limit);
}

Block *Manager::acquire_host(HostPool &pool, uint64_t size, CUresult &result) {
    const Current current(driver_, context_, context_id_);
    result = current.result();
    if (result != CUDA_SUCCESS) {
        return nullptr;
    }
    Lock lock(mutex_);
    order_.collect_graphs();
    hand_over_own_pinned();
    Block *block = pool.take(size);
    if (!block && !pool.outgrown(size)) {
        ask_for_host(lock, pool, size);
        block = served_.serves() ? pool.take(size) : nullptr;
        if (!block && fetch_pinned()) {
            ask_for_host(lock, pool, size);
            block = served_.serves() ? pool.take(size) : nullptr;
        }
    }
    if (!block) {
        block = grow_host(lock, pool, size, result);
    }
    if (!block && result == CUDA_ERROR_OUT_OF_MEMORY) {
        block = squeeze_host(lock, pool, size, result);
    }
    return served_.serves() ? block : nullptr;
}

// Asks about one stream after another until one of them has given enough back. No event is recorded
// on the context here: an unannounced capture would not survive it, unless somebody has freed with
// no stream.
void Manager::ask_for_host(Lock &lock, HostPool &pool, uint64_t size) {
    if (size <= shelf_limit) {
        pool.shelves[class_of(size)].questions++;
    }
    const auto served = [&] {
        return size <= shelf_limit && !pool.shelves[class_of(size)].blocks.empty();
    };
    order_.call_for_events();
    order_.query_for_pinned(lock, served);
    if (!order_.cross_context().pinned.empty() && !served()) {
        cross_context_.query(lock);
        cross_context_.mark(lock);
    }
}

// Some blocks at a time if they are not large: then the driver is asked about several at once.
Block *Manager::grow_host(Lock &lock, HostPool &pool, uint64_t size, CUresult &result) {
    if (size <= shelf_limit && pool.outgrown(size)) {
        Shelf &shelf = pool.shelves[class_of(size)];
        shelf.questions = 0;
        shelf.growths++;
    } else {
        pool.clear_shelves();
        if (Block *block = pool.take(size)) {
            return block;
        }
    }
    const uint64_t exact = round_up(host_rounding(size), segment_granule);
    const uint64_t several = std::min(host_rounding(size) * blocks_a_segment, largest_part);
    const uint64_t wanted = std::max(exact, round_up(several, segment_granule));
    for (int attempt = 0; attempt < 2; attempt++) {
        const uint64_t extra = pool.ragged ? segment_granule : 0;
        result = add_host_segment(lock, pool, wanted + extra);
        if (result == CUDA_ERROR_OUT_OF_MEMORY && wanted != exact) {
            result = add_host_segment(lock, pool, exact + extra);
        }
        Block *block = result == CUDA_SUCCESS ? pool.take(size) : nullptr;
        if (block || result != CUDA_SUCCESS) {
            return block; // none if the segment's ends were ragged: once more
        }
    }
    return nullptr;
}

// Idle memory goes back, of other sizes and flags; then all work is waited for, unless that could
// hurt a capture.
Block *Manager::squeeze_host(Lock &lock, HostPool &pool, uint64_t size, CUresult &result) {
    constexpr int most_rounds = 64;
    Block *block = nullptr;
    bool others = false; // have given something back since
    for (int round = 0; round < most_rounds && !block; round++) {
        const bool may_wait = !order_.has_announced_captures();
        const Moves::Watch watch(moves_);
        if (round > 0 && may_wait && order_.wait_for_context(lock)) {
            cross_context_.wait(lock);
        } else {
            ask_for_host(lock, pool, size);
        }
        if (fetch_pinned()) {
            ask_for_host(lock, pool, size);
        }
        pool.clear_shelves();
        block = pool.take(size);
        if (!block && !moves_.are_deferred() && (release_host(lock, 0) > 0 || others)) {
            block = grow_host(lock, pool, size, result);
        }
        const bool last = round > 0 || !may_wait;
        others = !block && last && served_.serves() && moves_.await(lock, watch);
        if (last && !others) {
            break;
        }
    }
    return block;
}

CUresult Manager::add_host_segment(Lock &lock, HostPool &pool, uint64_t bytes) {
    if (bytes > options_.host_max || host_reserved_ > options_.host_max - bytes) {
        return CUDA_ERROR_OUT_OF_MEMORY;
    }
    host_reserved_ += bytes;
    CUresult result = CUDA_SUCCESS;
    std::unique_ptr<Segment> segment;
    try {
        const Moves::Move move(moves_);
        const Unlocked unlocked(lock);
        segment = new_host_segment(pool, bytes, result);
    } catch (...) {
        host_reserved_ -= bytes;
        throw;
    }
    served_.note_error(result);
    if (!segment) {
        host_reserved_ -= bytes;
        return result;
    }
    pool.ragged = pool.ragged || segment->size != segment->driver_bytes;
    pool.heap.add(*segment.release());
    return CUDA_SUCCESS;
}

// No lock is held. Pages are shared with nobody: the ends that are not aligned are left out.
std::unique_ptr<Segment> Manager::new_host_segment(HostPool &pool, uint64_t bytes,
                                                   CUresult &result) {
    const Relaxed relaxed(driver_);
    void *host = nullptr;
    CUdeviceptr device = 0;
    result = driver_.cuMemHostAlloc(&host, bytes, pool.flags);
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
            const Lock lock(mutex_);
            pool.heap.prepare(*segment);
        } else if (result == CUDA_SUCCESS) {
            const Lock lock(mutex_);
            pool.ragged = true;
            result = CUDA_ERROR_OUT_OF_MEMORY;
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

// Gives whole segments back until no more than `keep` is cached. All that lies in a pool's heap is
// complete, so the driver has nothing to wait for.
uint64_t Manager::release_host(Lock &lock, uint64_t keep) {
    uint64_t released = 0;
    for (auto &pool : hosts_) {
        if (!pool || moves_.are_deferred() || host_cached() <= keep) {
            continue;
        }
        pool->clear_shelves();
        Segment *segment = pool->heap.first_whole();
        while (segment && host_cached() > keep) {
            pool->heap.remove(*segment);
            caches_.await_lookups();
            const uint64_t bytes = segment->driver_bytes;
            {
                const Moves::Move move(moves_);
                const Unlocked unlocked(lock);
                free_host_segment(*segment);
            }
            host_reserved_ -= bytes;
            released += bytes;
            segment = pool->heap.first_whole();
        }
    }
    return released;
}

// No lock is held.
uint64_t Manager::free_host_segment(Segment &segment) {
    if (served_.lives()) {
        const Relaxed relaxed(driver_);
        driver_.cuMemFreeHost(reinterpret_cast<void *>(segment.driver_base));
    }
    const uint64_t bytes = segment.driver_bytes;
    delete &segment;
    return bytes;
}

// Its segments go to `segments`; what the caller does with them is its own affair.
void Manager::forget_host(HostPool &pool, List<Segment, &Segment::all> &segments) {
    for (Shelf &shelf : pool.shelves) {
        shelf = {};
    }
    List<Segment, &Segment::all> all = pool.heap.forget_all();
    while (Segment *segment = all.pop_front()) {
        segments.push_back(*segment);
    }
}

// --- freeing -------------------------------------------------------------------------------------

emm_status Manager::refuse_host_free(const void *host) {
    return emm_failf(&host_, EMM_E_NOT_OWNED, 0,
                     "pool: memhostfree of %p, which is no live pinned allocation of this manager "
                     "with these flags: freed already, or not where an allocation begins",
                     host);
}

StreamPool &Manager::unordered_pool(const HostPool &pool) {
    return is_portable(pool) ? order_.cross_context() : order_.unordered();
}

emm_status Manager::memhostfree(void *host, size_t size, uint32_t flags, emm_stream stream) {
    const auto address = reinterpret_cast<uintptr_t>(host);
    HostPool *pool =
        (flags & ~all_flags) == 0 ? known_hosts_[flags].load(std::memory_order_acquire) : nullptr;
    if (pool && give_pinned_at_once(*pool, address, size, stream)) {
        return EMM_OK;
    }
    Lock lock(mutex_);
    const Place place = pool ? pool->lent_at(address) : Place{};
    if (!place) {
        lock.unlock();
        return refuse_host_free(host);
    }
    const uint64_t asked = place.block->loan.size();
    if (size != 0 && size != asked) {
        lock.unlock();
        return emm_failf(&host_, EMM_E_INVALID_VALUE, 0,
                         "pool: memhostfree of %p as %zu bytes, which was allocated as %llu; it "
                         "was not freed",
                         host, size, static_cast<unsigned long long>(asked));
    }
    StreamPool *stream_pool =
        stream == EMM_STREAM_UNORDERED ? &unordered_pool(*pool) : order_.known(stream);
    if (!stream_pool || place.block->uses) {
        lock.unlock();
        return memhostfree_slowly(*pool, address, stream);
    }
    const bool unordered = stream == EMM_STREAM_UNORDERED;
    if (Magazine *magazine = stocked_magazine(stream, unordered ? order_.common() : *stream_pool)) {
        hand_over_pinned(*magazine);
    }
    free_host(place, *stream_pool);
    upkeep(lock, *stream_pool, nullptr);
    return EMM_OK;
}

emm_status Manager::memhostfree_slowly(HostPool &pool, uint64_t host, emm_stream stream) {
    Caller caller;
    const emm_status known = served_.serves() ? order_.identify(stream, caller) : EMM_OK;
    if (known == EMM_E_INVALID_VALUE) {
        return known;
    }
    if (known != EMM_OK || (caller.capturing && order_.enter_capture(caller) != EMM_OK)) {
        caller = {};
    }
    Lock lock(mutex_);
    const Place place = pool.lent_at(host);
    if (!place) { // somebody else was quicker
        lock.unlock();
        return refuse_host_free(reinterpret_cast<void *>(host));
    }
    StreamPool *stream_pool = &unordered_pool(pool);
    if (caller.kind != StreamKind::none) {
        try {
            stream_pool = &pool_of(caller);
        } catch (const std::exception &) { // no memory, or the capture has ended
            caller = {};
        }
    }
    stream_pool->hold();
    StreamPool *used = free_host(place, *stream_pool);
    if (used) {
        order_.record_event_if_reachable(lock, *used);
    }
    upkeep(lock, *stream_pool, &caller);
    order_.let_go(*stream_pool);
    return EMM_OK;
}

// Returns a stream that should get an event now, or NULL.
StreamPool *Manager::free_host(Place place, StreamPool &stream_pool) {
    host_live_ -= place.block->loan.size();
    host_taken_ -= place.block->size;
    place.block->loan.end();
    return order_.free(place, stream_pool);
}

// What `stream_pool` freed with tags up to `tag` is complete.
void Manager::shelve(StreamPool &stream_pool, uint64_t tag) {
    while (Block *block = stream_pool.pinned.first()) {
        if (block->tag > tag) {
            return;
        }
        stream_pool.pinned.remove(*block);
        host_waiting_ -= block->size;
        block->host->give(*block);
    }
}

} // namespace emm::pool

#include "request.h"

#include "backing/zones.h"
#include "policy/effort.h"

namespace emm::pool {
namespace {

bool fits_a_slot(const StreamPool &pool, uint64_t size) {
    return size <= slab_limit && pool.order != Order::capture;
}

} // namespace

// The steps of a request, the cheapest first:
//   Manager::take_from_magazine           no lock; plugin.cpp calls memalloc only if this gives 0
//   Manager::memalloc                     no lock: the magazine again, and its stream's depot; the
//                                         driver identifies an unregistered stream first
//   Request::serve                        the pool's lock, from here on
//     take_for_known_stream               no driver call
//     identify, take_for_identified_stream
//     search > find_allocation > find_block    grow asks the driver for memory
emm_status Manager::memalloc(size_t size, emm_stream stream, emm_deviceptr *ret_ptr) {
    Magazine *magazine = Thread::magazine_for(serving_.load(std::memory_order_relaxed), stream);
    const bool registered = magazine && !magazine->lock.closed_for_good();
    if (!registered) {
        magazine = caches_.find_unregistered(stream);
    }
    const bool may_have_it = magazine && !(registered && magazine->never_holds(size));
    if (may_have_it && caches_.enter(*magazine)) {
        uint64_t address = magazine->take(size);
        if (address == 0 && size <= slab_limit && magazine->swap_in(class_of(size))) {
            address = magazine->take(size);
        }
        magazine->lock.leave();
        if (address != 0) {
            *ret_ptr = address;
            return EMM_OK;
        }
    }
    return Request(*this, size, stream, registered ? magazine : nullptr).serve(ret_ptr);
}

inline Manager::Request::Request(Manager &manager, size_t size, emm_stream stream,
                                 Magazine *magazine)
    : manager_(manager), size_(size), stream_(stream), magazine_(magazine),
      call_(manager.served_.driver, manager.caches_),
      lock_(manager.served_.mutex, std::defer_lock) {}

emm_status Manager::Request::serve(emm_deviceptr *ret_ptr) {
    ServedContext &served = manager_.served_;
    if (!served.serves()) {
        return served.failed(served.lost(), "an earlier call");
    }
    lock_.lock();
    if (!manager_.pause_.admit(lock_, manager_.options_.waits_when_paused)) {
        manager_.memory_.counts.count_failure();
        lock_.unlock();
        return manager_.refuse_paused("memalloc");
    }
    const PauseState::Use use(lock_, manager_.pause_);
    emm_deviceptr address = size_ <= largest_request ? take_for_known_stream() : 0;
    if (address == 0 && is_impossible()) {
        return refuse();
    }
    if (address == 0) {
        const emm_status status = identify();
        if (status != EMM_OK) {
            return status;
        }
        address = take_for_identified_stream();
    }
    address = address ? address : search();
    if (address == 0) {
        return fail();
    }
    *ret_ptr = address;
    return EMM_OK;
}

// If no amount of reclaiming could serve the request, nothing is asked for, and nothing moves. The
// driver gives whole pages or segments. The device's bound may have been raised meanwhile.
bool Manager::Request::is_impossible() {
    if (size_ > largest_request) {
        return true;
    }
    if (!exceeds_limit()) {
        return false;
    }
    uint64_t bytes;
    {
        const Unlocked unlocked(lock_);
        bytes = manager_.served_.read_device_bytes();
    }
    manager_.served_.device_bytes = bytes;
    return exceeds_limit();
}

bool Manager::Request::exceeds_limit() const {
    const uint64_t obtainable =
        manager_.holdings_.request_limit() / segment_granule * segment_granule;
    return round_up(block_bytes(manager_.options_, size_), segment_granule) > obtainable;
}

// --- free memory ---------------------------------------------------------------------------------

// While the thread's magazine is open, it has the free pool of the stream.
inline emm_deviceptr Manager::Request::take_for_known_stream() {
    const auto is_open = [this] { return magazine_ && !magazine_->lock.closed_for_good(); };
    if (is_open() && manager_.caches_.hand_over_blocks(*magazine_)) {
        manager_.maintain(lock_, manager_.order_.unordered(), nullptr); // may complete blocks
    }
    Magazine *magazine = is_open() ? magazine_ : nullptr;
    pool_ = magazine ? &magazine->pool : manager_.order_.known(stream_);
    if (!pool_ || !manager_.served_.serves()) {
        return 0;
    }
    magazine = magazine ? magazine : manager_.caches_.own(stream_, *pool_);
    const emm_deviceptr address = take_free(magazine);
    if (address) {
        manager_.maintain(lock_, *pool_, nullptr);
    }
    return address;
}

emm_status Manager::Request::identify() {
    magazine_ = nullptr; // its miss has been noted
    if (pool_ && manager_.order_.known(stream_, caller_)) {
        return EMM_OK;
    }
    pool_ = nullptr;
    const Unlocked unlocked(lock_);
    return manager_.identify(stream_, caller_);
}

// For a stream that was not known before; or for blocks that threads freed with no stream. Those
// become complete in the block depot, not in the heap, where a search for them would join and cut
// them.
emm_deviceptr Manager::Request::take_for_identified_stream() {
    ThreadCaches &caches = manager_.caches_;
    const bool was_known = pool_;
    pool_ = &manager_.pool_of(caller_);
    Magazine *magazine = nullptr;
    if (!was_known) {
        if (caller_.kind == StreamKind::unregistered && !manager_.order_.has_answered(*pool_)) {
            pool_->hold();
            manager_.maintain(lock_, *pool_, &caller_);
            pool_->unhold();
        }
        magazine = caches.own_for(caller_, *pool_);
    } else if (caller_.kind == StreamKind::none && size_ > slab_limit) {
        bytes_ = round_up(size_, granule);
        magazine = caches.own(stream_, *pool_);
        if (!magazine || grows_unasked() || !caches.asks_about_blocks(*magazine, bytes_)) {
            return 0;
        }
        manager_.order_.record_and_query_unordered(lock_);
        magazine = caches.own(stream_, *pool_);
    } else {
        return 0;
    }
    const emm_deviceptr address = take_free(magazine);
    if (address) {
        manager_.holdings_.count_served();
    }
    return address;
}

// Needs no driver call. While the lock is held anyway, the magazine, which may be NULL, gets more
// of the same.
emm_deviceptr Manager::Request::take_free(Magazine *magazine) {
    ThreadCaches &caches = manager_.caches_;
    const bool is_small = size_ <= slab_limit;
    if (magazine) {
        caches.take_over(*magazine);
        if (is_small) {
            caches.refill(*magazine, class_of(size_));
        }
        const bool had_no_block = magazine == magazine_ && !is_small; // nor has one come since
        const emm_deviceptr address = had_no_block ? 0 : magazine->take(size_);
        if (address) {
            return address;
        }
        if (is_small) {
            caches.unload_blocks(*magazine);
        } else if (caches.refill_blocks(*magazine, round_up(size_, granule))) {
            return magazine->take(size_);
        }
        if (had_no_block) {
            magazine->note_miss(round_up(size_, granule));
        }
        if (!is_small && magazine->unordered && take_ahead(*magazine)) {
            return magazine->take(size_);
        }
    }
    const BlockOrSlot allocation = take_allocation();
    if (magazine && allocation.slot) {
        caches.refill(*magazine, allocation.slot->index);
    }
    return allocation ? account(allocation) : 0;
}

// Gives the magazine some blocks of the size at once, from the heap, while much memory is pending
// and no other size is asked for.
// Not inlined, because other requests would pay.
[[gnu::noinline]] bool Manager::Request::take_ahead(Magazine &magazine) {
    const uint64_t bytes = round_up(size_, granule);
    const bool may = magazine.misses_again(bytes) && block_bytes(manager_.options_, size_) == bytes;
    const uint64_t most = may ? bytes_ahead(manager_.holdings_.allowance(bytes)) : 0;
    return most > bytes && manager_.caches_.add_blocks(magazine, bytes, most, [&] {
        return manager_.backing_->take(*pool_, bytes);
    });
}

inline BlockOrSlot Manager::Request::take_allocation() {
    if (!fits_a_slot(*pool_, size_)) {
        bytes_ = block_bytes(manager_.options_, size_);
        return {take(), nullptr};
    }
    const unsigned index = class_of(size_);
    Slot *slot = manager_.memory_.slabs.take(*pool_, index);
    if (!slot) {
        bytes_ = slab_bytes(index);
        Block *block = take();
        slot = block ? slot_of_new_slab(*block, index) : nullptr;
    }
    return {nullptr, slot};
}

Slot *Manager::Request::slot_of_new_slab(Block &block, unsigned index) {
    manager_.order_.mark_dirty(*pool_, 0);
    try {
        manager_.memory_.slabs.prepare(index);
    } catch (const std::bad_alloc &) {
        manager_.memory_.heap.give(block, *pool_);
        throw;
    }
    manager_.memory_.slabs.add(index, block, *pool_);
    return manager_.memory_.slabs.take(*pool_, index);
}

inline emm_deviceptr Manager::Request::account(BlockOrSlot allocation) {
    allocation.begin_loan(size_);
    manager_.order_.adopt(allocation, *pool_);
    manager_.memory_.counts.count_allocation(size_, allocation.size());
    manager_.holdings_.count_request(size_);
    manager_.check();
    return allocation.begin();
}

// --- the search ----------------------------------------------------------------------------------

emm_deviceptr Manager::Request::search() {
    BlockOrSlot allocation;
    pool_->hold();
    {
        const ThreadCaches::Search whole_blocks(lock_, manager_.caches_);
        try {
            allocation = find_allocation();
        } catch (const std::bad_alloc &) {
            lacks_host_memory_ = true;
        }
    }
    if (!allocation) {
        manager_.order_.end_use(*pool_);
        return 0;
    }
    const emm_deviceptr address = account(allocation);
    manager_.holdings_.count_served();
    manager_.maintain(lock_, *pool_, nullptr);
    manager_.order_.end_use_of_capture(*pool_);
    return address;
}

// A slab needs more memory than one slot, so memory too short for a slab may still suffice for the
// slot.
BlockOrSlot Manager::Request::find_allocation() {
    const bool is_small = fits_a_slot(*pool_, size_);
    if (is_small) {
        const unsigned index = class_of(size_);
        bytes_ = slab_bytes(index);
        if (Block *block = find_block()) {
            return {nullptr, slot_of_new_slab(*block, index)};
        }
        if (!is_exhausted()) {
            return {};
        }
    }
    bytes_ = block_bytes(manager_.options_, size_);
    if (Block *block = find_block()) {
        return {block, nullptr};
    }
    return {nullptr, is_small && is_exhausted() ? take_any_slot() : nullptr};
}

// Takes complete slots of other streams' slabs, and slots of larger classes.
Slot *Manager::Request::take_any_slot() {
    Slabs &slabs = manager_.memory_.slabs;
    manager_.order_.each_pool([&](StreamPool &pool) {
        if (pool.order == Order::stream && &pool != pool_) {
            slabs.disband(pool);
        }
    });
    Slot *slot = nullptr;
    for (unsigned index = class_of(size_); index < slab_classes && !slot; index++) {
        slot = slabs.take(*pool_, index);
    }
    return slot;
}

// Each stage costs more than the one before, and looks once at the memory that it has freed.
//
// Waiting comes before growth, as in cuMemAllocAsync and RMM: a pool that grows first ends with the
// sum of all streams' peaks, permanently. Memory known to be complete comes before both, so a
// stream waits only if all free memory is really in use.
Block *Manager::Request::find_block() {
    static constexpr Block *(Request::*stages[])() = {
        &Request::empty_own_magazines, // the only stage without a driver call
        &Request::query_unordered,     // asks about memory freed with no stream, if it is much
        &Request::grow_unasked,        // if growth is cheaper than further questions
        &Request::query_best_fit,      // asks whether the best fitting block is complete
        &Request::query_all_streams,   // asks for all complete memory
        &Request::wait_for_stream,     // waits on the device, for the stream that freed a block
        &Request::empty_all_magazines, // and asks again
        &Request::grow,                // uses idle memory elsewhere, or asks the driver for more
        &Request::reclaim, // all idle memory makes room; then spills; then waits on the CPU
    };
    result_ = CUDA_SUCCESS;
    Block *block = nullptr;
    for (const auto stage : stages) {
        const bool asks_driver = stage != &Request::empty_own_magazines;
        if (block || !manager_.served_.serves() || (asks_driver && !enter_context())) {
            break;
        }
        block = (this->*stage)();
    }
    return block;
}

bool Manager::Request::enter_context() {
    if (!current_) {
        const Unlocked unlocked(lock_);
        current_.emplace(manager_.served_.driver, manager_.served_.handle, manager_.served_.id);
    }
    return current_->result() == CUDA_SUCCESS;
}

// --- how it fails --------------------------------------------------------------------------------

emm_status Manager::Request::refuse() {
    manager_.memory_.counts.count_failure();
    const Holdings &holdings = manager_.holdings_;
    const unsigned long long most = holdings.request_limit();
    const char *const limit = most > holdings.limit()        ? "spill"
                              : holdings.is_limited_by_max() ? "max"
                                                             : "the device";
    lock_.unlock();
    return emm_failf(&manager_.host_, EMM_E_OUT_OF_MEMORY, 0, "pool: %s allows at most %llu bytes",
                     limit, most);
}

emm_status Manager::Request::fail() {
    manager_.memory_.counts.count_failure();
    const unsigned long long live = manager_.caches_.live_bytes(),
                             reserved = manager_.holdings_.reserved(),
                             largest = manager_.memory_.heap.largest_free(),
                             max = manager_.options_.max, spilled = manager_.holdings_.spilled(),
                             spill = manager_.holdings_.most_spilled();
    lock_.unlock();
    ServedContext &served = manager_.served_;
    if (lacks_host_memory_) {
        return manager_.host_.fail(EMM_E_OUT_OF_HOST_MEMORY, 0,
                                   "pool: no host memory for its own records");
    }
    if (current_ && current_->result() != CUDA_SUCCESS) {
        return served.failed(current_->result(), "cuCtxPushCurrent");
    }
    if (!served.serves()) {
        return served.failed(served.lost(), "a driver call");
    }
    if (!is_exhausted()) {
        return served.failed(result_, manager_.backing_->calls());
    }
    char limit[48] = "no max", of_host[64] = "";
    if (max != UINT64_MAX) {
        snprintf(limit, sizeof limit, "max %llu", max);
    }
    if (spill > 0) {
        snprintf(of_host, sizeof of_host, ", %llu of spill %llu", spilled, spill);
    }
    return emm_failf(&manager_.host_, EMM_E_OUT_OF_MEMORY, answer_of_driver(result_),
                     "pool: %llu bytes live, %llu reserved (%s%s), largest free block %llu", live,
                     reserved, limit, of_host, largest);
}

} // namespace emm::pool

#include "pinned_memory.h"

#include "policy/effort.h"

namespace emm::pool {
namespace {

constexpr uint32_t all_flags = EMM_HOST_PORTABLE | EMM_HOST_MAPPED | EMM_HOST_WRITE_COMBINED;

// Blocks that are just being taken have no pool yet.
uint64_t taken_from(const HostPool &pool) {
    uint64_t taken = 0;
    for (const Segment *s = pool.heap.first_segment(); s; s = pool.heap.next_segment(*s)) {
        for (const Block *block = s->first; block; block = block->right) {
            taken += block->state == State::live && block->host ? block->size : 0;
        }
    }
    return taken;
}

} // namespace

PinnedMemory::~PinnedMemory() {
    while (Segment *segment = refused_.pop_front()) {
        delete segment;
    }
}

bool PinnedMemory::serves(uint32_t flags) const {
    return (flags & ~all_flags) == 0 && driver_.serves_host();
}

HostPool &PinnedMemory::pool_with(uint32_t flags) {
    auto &pool = pools_[flags];
    if (!pool) {
        pool = std::make_unique<HostPool>(flags);
        if (pool->is_portable()) {
            cross_context_.begin();
        }
        known_[flags].store(pool.get(), std::memory_order_release);
    }
    return *pool;
}

const HostPool *PinnedMemory::known(uint32_t flags) const {
    return (flags & ~all_flags) == 0 ? known_[flags].load(std::memory_order_acquire) : nullptr;
}

// --- allocations ---------------------------------------------------------------------------------

Block *PinnedMemory::take(Lock &lock, uint32_t flags, size_t size, CUresult &result) {
    HostPool &pool = pool_with(flags);
    result = no_memory_of_pool;
    if (size > largest_request || !context_.serves()) {
        return nullptr;
    }
    Block *block = pool.take_ready(size);
    if (!block) {
        const Unlocked unlocked(lock);
        block = acquire(pool, size, result);
    }
    if (block) {
        begin_loan(*block, pool, size);
    }
    return block;
}

void PinnedMemory::begin_loan(Block &block, HostPool &pool, size_t size) {
    block.state = State::live;
    block.loan.begin(size);
    block.host = &pool;
    live_ += size;
    taken_ += block.size;
    if (size <= ready_limit) {
        refill(pool, size);
    }
}

// No lock is held.
Block *PinnedMemory::acquire(HostPool &pool, uint64_t size, CUresult &result) {
    const Current current = context_.make_current();
    result = current.result();
    if (result != CUDA_SUCCESS) {
        return nullptr;
    }
    Lock lock(context_.mutex);
    order_.collect_graphs();
    hand_over_own_magazines();
    Block *block = pool.take(size);
    if (!block && !pool.outgrown(size)) {
        block = reuse(lock, pool, size);
        if (!block && fetch_from_threads()) {
            block = reuse(lock, pool, size);
        }
    }
    if (!block) {
        block = grow(lock, pool, size, result);
    }
    if (!block && is_exhausted(result)) {
        block = reclaim(lock, pool, size, result);
    }
    return context_.serves() ? block : nullptr;
}

Block *PinnedMemory::reuse(Lock &lock, HostPool &pool, uint64_t size) {
    ask(lock, pool, size);
    return context_.serves() ? pool.take(size) : nullptr;
}

// Asks about one stream after another until one has given enough back. Records no event on the
// context, which would invalidate an unannounced capture, unless some call has freed with no
// stream.
void PinnedMemory::ask(Lock &lock, HostPool &pool, uint64_t size) {
    if (size <= ready_limit) {
        pool.ready[class_of(size)].questions++;
    }
    const auto served = [&] {
        return size <= ready_limit && !pool.ready[class_of(size)].blocks.empty();
    };
    order_.call_for_events();
    order_.query_for_pinned(lock, served);
    if (!order_.cross_context().pinned.empty() && !served()) {
        cross_context_.query(lock);
        cross_context_.mark(lock);
    }
}

emm_deviceptr PinnedMemory::device_address(const Block &block) {
    const Segment &segment = *block.segment;
    return segment.device_base ? segment.device_base + (block.begin - segment.driver_base) : 0;
}

BlockOrSlot PinnedMemory::allocation_at(uint32_t flags, uint64_t host) const {
    const HostPool *pool = known(flags);
    return pool ? pool->allocation_at(host) : BlockOrSlot{};
}

BlockOrSlot PinnedMemory::allocation_at(uint64_t host) const {
    BlockOrSlot allocation;
    for (const auto &pool : pools_) {
        allocation = !allocation && pool ? pool->allocation_at(host) : allocation;
    }
    return allocation;
}

// --- frees ---------------------------------------------------------------------------------------

StreamPool &PinnedMemory::unordered_pool(const Block &block) {
    return block.host->is_portable() ? order_.cross_context() : order_.unordered();
}

StreamPool *PinnedMemory::free(BlockOrSlot allocation, StreamPool &stream_pool) {
    live_ -= allocation.block->loan.size();
    taken_ -= allocation.block->size;
    allocation.block->loan.end();
    return order_.free(allocation, stream_pool);
}

void PinnedMemory::keep_until_complete(Block &block, StreamPool &stream_pool) {
    block.state = State::waiting;
    block.tag = order_.clock().now();
    waiting_ += block.size;
    stream_pool.pinned.push_back(block);
}

void PinnedMemory::complete(StreamPool &stream_pool, uint64_t tag) {
    while (Block *block = stream_pool.pinned.first()) {
        if (block->tag > tag) {
            return;
        }
        stream_pool.pinned.remove(*block);
        waiting_ -= block->size;
        block->host->give(*block);
    }
}

// --- counts --------------------------------------------------------------------------------------

std::string PinnedMemory::fault() const {
    std::string found;
    uint64_t taken = 0;
    for (const auto &pool : pools_) {
        found = pool && found.empty() ? pool->fault() : found;
        taken += pool ? taken_from(*pool) : 0;
    }
    return found.empty() && taken != taken_
               ? "the pinned memory that is taken is not what was counted"
               : found;
}

} // namespace emm::pool

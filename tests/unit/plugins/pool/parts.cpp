#include "parts.h"

#include "catch.h"

namespace pool_test {

std::atomic<uint64_t> Parts::next_identity{1};

emm_context_info Parts::made_context(CUcontext &context) {
    auto info = sized<emm_context_info>();
    REQUIRE(cuda().cuCtxCreate(&context, 0, 0) == CUDA_SUCCESS);
    info.cuda_context = context;
    unsigned long long id = 0;
    REQUIRE(cuda().cuCtxGetId(context, &id) == CUDA_SUCCESS);
    info.context_id = id;
    return info;
}

Parts::Parts(const emm_host &its_host)
    : served(its_host, made_context(context), serving), lock(served.mutex) {
    memory.heap.prepare(segment_);
    memory.heap.add(segment_);
}

Parts::~Parts() {
    caches.close(nullptr);
    caches.forget_quarantine();
    order.each_pool([this](StreamPool &pool) {
        while (Slab *slab = pool.slabs.pop_front()) {
            memory.slabs.forget(*slab);
        }
    });
    memory.heap.forget_all();
    order.forget_memory();
    lock.unlock();
    for (const CUstream stream : std::vector<CUstream>(streams_)) {
        retire(stream);
    }
    cuda().cuCtxDestroy(context);
}

StreamPool &Parts::pool_of(uint64_t key) {
    Caller caller;
    caller.kind = StreamKind::unregistered;
    caller.key = key;
    return order.pool_of(caller);
}

CUstream Parts::stream(unsigned flags) {
    CUstream made = nullptr;
    REQUIRE(cuda().cuStreamCreate(&made, flags) == CUDA_SUCCESS);
    streams_.push_back(made);
    const Unlocked unlocked(lock);
    REQUIRE(order.enter_stream(made) == EMM_OK);
    return made;
}

void Parts::retire(CUstream stream) {
    const bool locked = lock.owns_lock();
    if (locked) {
        lock.unlock();
    }
    REQUIRE(order.retire_stream(stream) == EMM_OK);
    if (locked) {
        lock.lock();
    }
    streams_.erase(std::find(streams_.begin(), streams_.end(), stream));
    cuda().cuStreamDestroy(stream);
}

void Parts::add_slab(unsigned index, StreamPool &pool) {
    memory.heap.reserve_record();
    memory.slabs.prepare(index);
    memory.slabs.add(index, *memory.heap.take(pool, slab_bytes(index)), pool);
}

size_t Parts::walk_length() const {
    size_t length = 0;
    caches.each([&](const Magazine &) { length++; });
    return length;
}

} // namespace pool_test

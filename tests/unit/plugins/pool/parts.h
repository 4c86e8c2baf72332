// The stream order and the thread caches by themselves: on the simulated driver, above a heap with
// one segment, and with a manager that only records its calls.
#pragma once

#include "simulation.h"

#include "cache/thread_caches.h"

namespace pool_test {

using namespace emm::pool;

struct NotedMemory : FreedMemory {
    void give(BlockOrSlot allocation, StreamPool &pool) override {
        given.push_back({allocation.block, &pool});
    }
    void hold(BlockOrSlot allocation) override { held.push_back(allocation.block); }
    void give_held(BlockOrSlot allocation, StreamPool &pool) override { give(allocation, pool); }
    void complete(StreamPool &pool, uint64_t tag) override { completed.push_back({&pool, tag}); }
    void close_magazines(StreamPool &pool) override { closed.push_back(&pool); }
    void drop_spares(StreamPool &) override {}
    void disband(StreamPool &pool) override { disbanded.push_back(&pool); }

    std::vector<std::pair<Block *, StreamPool *>> given;
    std::vector<Block *> held;
    std::vector<std::pair<StreamPool *, uint64_t>> completed;
    std::vector<StreamPool *> closed, disbanded;
};

struct NoPinned : PinnedOwner {
    void drain_pinned(Magazine &) override {}
};

class Parts {
public:
    explicit Parts(const emm_host &its_host = host());
    ~Parts();
    Parts(const Parts &) = delete;

    StreamPool &pool_of(uint64_t key);                        // of an unregistered stream
    CUstream stream(unsigned flags = CU_STREAM_NON_BLOCKING); // registered
    StreamPool &registered(CUstream stream) { return *order.known(stream); }
    void retire(CUstream stream);
    void add_slab(unsigned index, StreamPool &pool);
    size_t walk_length() const; // magazines
    uint64_t calls(const char *entry) const { return cuda().call_count(entry); }

    static constexpr uint64_t bytes = 64 * MiB;

    CUcontext context = nullptr;

private:
    static std::atomic<uint64_t> next_identity;
    const uint64_t identity_ = next_identity++;
    std::vector<CUstream> streams_;

public:
    std::atomic<uint64_t> serving{identity_};
    ServedContext served;
    NotedMemory noted;
    StreamOrder order{served, noted};
    DeviceMemory memory{order.common(), order.clock()};
    NoPinned pinned;
    ThreadCaches caches{order, memory, pinned, identity_, serving, bytes};
    Lock lock; // held, except by calls that must not have it

private:
    static emm_context_info made_context(CUcontext &context);
    Segment segment_{0x7000'0000'0000, bytes, 0x7000'0000'0000, bytes};
};

} // namespace pool_test

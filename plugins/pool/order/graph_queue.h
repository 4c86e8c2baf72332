// Destroyed graphs are announced here. The driver runs a user object's destructor on a thread of
// its own, where no driver call is allowed, and perhaps after the manager has gone. So the
// destructor only pushes an entry here, and the last of both sides deletes the queue.
#pragma once

#include <atomic>
#include <cstdint>

namespace emm::pool {

class GraphDestroyedQueue;

struct GraphDestroyed {
    GraphDestroyedQueue *queue = nullptr;
    uint64_t capture_id = 0;
    uint64_t attempt = 0; // of retaining it on the graph: what failed says nothing about the graph
    GraphDestroyed *next = nullptr;
};

class GraphDestroyedQueue {
public:
    static GraphDestroyedQueue *make() { return new GraphDestroyedQueue; }
    void retain() { references_.fetch_add(1, std::memory_order_relaxed); }
    void release();
    void post(GraphDestroyed *entry);
    GraphDestroyed *collect() { return entries_.exchange(nullptr, std::memory_order_acquire); }
    bool empty() const { return !entries_.load(std::memory_order_relaxed); }

private:
    GraphDestroyedQueue() = default;
    ~GraphDestroyedQueue();
    std::atomic<GraphDestroyed *> entries_{nullptr};
    std::atomic<uint32_t> references_{1};
};

} // namespace emm::pool

#include "graph_queue.h"

namespace emm::pool {

void GraphDestroyedQueue::release() {
    if (references_.fetch_sub(1, std::memory_order_acq_rel) == 1) {
        delete this;
    }
}

GraphDestroyedQueue::~GraphDestroyedQueue() {
    for (GraphDestroyed *entry = collect(); entry;) {
        GraphDestroyed *next = entry->next;
        delete entry;
        entry = next;
    }
}

void GraphDestroyedQueue::post(GraphDestroyed *entry) {
    entry->next = entries_.load(std::memory_order_relaxed);
    while (!entries_.compare_exchange_weak(entry->next, entry, std::memory_order_release,
                                           std::memory_order_relaxed)) {
    }
}

} // namespace emm::pool

#include "captures.h"

#include "stream_order.h"

namespace emm::pool {
namespace {

// Runs in the driver: no driver call, no lock.
void CUDA_CB graph_is_gone(void *argument) {
    auto *entry = static_cast<GraphDestroyed *>(argument);
    GraphDestroyedQueue *queue = entry->queue;
    queue->post(entry);
    queue->release();
}

} // namespace

Captures::Captures(ServedContext &context, Streams &streams, StreamOrder &order,
                   FreedMemory &memory)
    : context_(context), streams_(streams), order_(order), memory_(memory),
      destroyed_(GraphDestroyedQueue::make()) {}

// Other threads wait for the outcome meanwhile. After a failure the next thread tries again.
emm_status Captures::enter(const Caller &caller) {
    uint64_t attempt = 0;
    {
        Lock lock(context_.mutex);
        for (;;) {
            const auto entry = captures_.find(caller.capture_id);
            if (entry == captures_.end()) {
                break;
            }
            if (entry->second->retained) {
                return EMM_OK;
            }
            entered_.wait(lock);
        }
        auto capture = std::make_unique<Capture>();
        capture->id = caller.capture_id;
        capture->attempt = attempt = ++attempts_;
        captures_.emplace(caller.capture_id, std::move(capture));
    }
    try {
        const emm_status status = retain_on_graph(caller, attempt);
        finish_entry(caller.capture_id, attempt, status == EMM_OK);
        return status;
    } catch (...) {
        finish_entry(caller.capture_id, attempt, false);
        throw;
    }
}

void Captures::finish_entry(uint64_t capture_id, uint64_t attempt, bool retained) {
    const Lock lock(context_.mutex);
    const auto entry = captures_.find(capture_id);
    if (entry != captures_.end() && entry->second->attempt == attempt) {
        entry->second->retained = retained;
        if (!retained) {
            captures_.erase(entry); // no other thread has used it
        }
    }
    entered_.notify_all();
}

emm_status Captures::retain_on_graph(const Caller &caller, uint64_t attempt) {
    const Driver &driver = context_.driver;
    auto entry = std::make_unique<GraphDestroyed>();
    entry->queue = destroyed_;
    entry->capture_id = caller.capture_id;
    entry->attempt = attempt;
    CUuserObject object = nullptr;
    CUresult result = driver.cuUserObjectCreate(&object, entry.get(), graph_is_gone, 1,
                                                CU_USER_OBJECT_NO_DESTRUCTOR_SYNC);
    if (result != CUDA_SUCCESS) {
        return context_.failed(result, "cuUserObjectCreate");
    }
    destroyed_->retain();
    entry.release(); // graph_is_gone will post it, now or when the graph goes
    result = driver.cuGraphRetainUserObject(caller.graph, object, 1, CU_GRAPH_USER_OBJECT_MOVE);
    if (result != CUDA_SUCCESS) {
        driver.cuUserObjectRelease(object, 1);
        return context_.failed(result, "cuGraphRetainUserObject");
    }
    return EMM_OK;
}

StreamPool &Captures::pool_of(const Caller &caller) {
    const auto entry = captures_.find(caller.capture_id);
    if (entry == captures_.end()) {
        throw PluginError(EMM_E_CAPTURING, 0, "pool: the capture has ended meanwhile");
    }
    Capture &capture = *entry->second;
    if (const auto known = capture.pools.find(caller.key); known != capture.pools.end()) {
        return *known->second;
    }
    // If there is no host memory for the entry, the pool stays unused.
    StreamPool *const pool = streams_.make();
    capture.pools.emplace(caller.key, pool);
    pool->order = Order::capture;
    pool->capture_ = &capture;
    return *pool;
}

void Captures::hold(BlockOrSlot allocation, Capture &capture) {
    memory_.hold(allocation);
    keep(allocation, capture);
}

void Captures::keep(BlockOrSlot allocation, Capture &capture) {
    if (allocation.slot) {
        capture.slots.push(*allocation.slot);
    } else {
        capture.blocks.push_back(*allocation.block);
    }
}

void Captures::collect() {
    for (GraphDestroyed *gone = destroyed_->collect(); gone;) {
        const auto entry = captures_.find(gone->capture_id);
        if (entry != captures_.end() && entry->second->attempt == gone->attempt &&
            !entry->second->gone) {
            finish(*entry->second);
        }
        GraphDestroyed *next = gone->next;
        delete gone;
        gone = next;
    }
}

// The graph is gone, and so is the last run of every executable graph made of it: the driver keeps
// what a graph retains for that long. Memory allocated and freed inside is complete with that.
// Memory that came from outside, or was freed there, may have other uses: it counts as freed
// unordered.
void Captures::finish(Capture &capture) {
    capture.gone = true;
    capture.references++; // for as long as this function runs
    for (auto &[key, pool] : capture.pools) {
        memory_.complete(*pool, order_.now());
        pool->capture_ = nullptr;
        if (pool->references_ == 0) {
            streams_.recycle(*pool);
        } // else the call that is under way does
    }
    capture.pools.clear();
    while (Block *block = capture.blocks.pop_front()) {
        give_back(*block);
    }
    while (capture.slots.first) {
        memory_.give_held({nullptr, capture.slots.pop()}, order_.unordered());
    }
    while (UseRecord *record = capture.uses.pop_front()) {
        order_.advance(*record);
    }
    order_.mark_dirty(order_.unordered(), 0);
    drop_reference(capture);
}

// Gives back a block that was freed in a capture that has ended.
void Captures::give_back(Block &block) {
    Capture *owner = block.capture;
    if (owner && !owner->gone) { // allocated in another that lives
        return keep({&block, nullptr}, *owner);
    }
    block.capture = nullptr;
    memory_.give_held({&block, nullptr}, order_.unordered());
    if (owner) {
        drop_reference(*owner);
    }
}

// If its graph has gone and nothing points to it any more, the record of a capture is deleted.
void Captures::drop_reference(Capture &capture) {
    if (--capture.references == 0 && capture.gone) {
        captures_.erase(capture.id);
    }
}

void Captures::forget_all(uint64_t now) {
    for (auto &[id, capture] : captures_) {
        for (auto &[key, pool] : capture->pools) {
            pool->forget_memory(now);
            streams_.recycle(*pool);
        }
    }
    captures_.clear();
}

} // namespace emm::pool

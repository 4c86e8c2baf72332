// passthrough: every request goes straight to the driver, and frees go back through emm's queue of
// pending deallocations, as in Numba's own memory manager. It serves when no plugin is
// named, and it is written to be copied from. What it shows:
//
//   1. One class, one object for each CUDA context. emm::make_plugin turns its members into the
//      table's slots, and exceptions into statuses. Slots that it leaves out (pinned, registered
//      and managed memory, memory info, IPC) are emm's own, over the driver.
//   2. The driver through host.driver(): no CUDA library is linked.
//   3. A free has two halves. memfree takes the allocation out of the live ones at once, so that a
//      second free of the same address is refused; the driver gets it back when the queue is
//      flushed, from any thread, with any or no current context, or never if the context died.
//   4. What is shared with a pending free (State) belongs to both: a flush on another thread may
//      still be at work when the manager goes.
//   5. An allocation's record is made before the memory, so that nothing can fail in between.
//
// Streams: cuMemAlloc's memory may be used anywhere at once, and cuMemFree waits for all work that
// could still use it, so `stream` matters only while it captures (see graph_hold.h), and if it is
// another context's, for which cuMemFree need not wait: such a free is refused.
#include "common/allocations.h"
#include "common/driver.h"
#include "common/graph_hold.h"

#include <memory>
#include <utility>

namespace emm::passthrough {
namespace {

using namespace common;

struct State {
    explicit State(const emm_host &the_host) : host(the_host), driver(the_host) {}
    const emm_host &host;
    const Driver driver;
    LiveAllocations allocations;

    CUresult give_back(LiveAllocations::Entry entry) {
        const RelaxedCapture relaxed(driver);
        const CUresult result = driver.cuMemFree(entry.key());
        if (is_returned(result)) {
            allocations.returned(entry.mapped());
        } else {
            allocations.keep_refused(std::move(entry));
        }
        return result;
    }
};

// What goes through the queue of pending deallocations.
struct PendingFree {
    std::shared_ptr<State> state;
    LiveAllocations::Entry entry;

    static emm_status run(void *argument, uint32_t what);
};

class Manager {
public:
    Manager(const emm_host &host, const emm_context_info &info, const char *const *)
        : host_(host), context_(info.context), cuda_context_(info.cuda_context),
          context_id_(info.context_id), device_(info.device),
          state_(std::make_shared<State>(host)) {}
    ~Manager() { drop_all(); }
    Manager(const Manager &) = delete;
    Manager &operator=(const Manager &) = delete;

    emm_status memalloc(size_t size, emm_stream stream, emm_deviceptr *ret_ptr);
    emm_status memfree(emm_deviceptr ptr, size_t size, emm_stream stream);
    emm_status reset();
    emm_status query(emm_deviceptr ptr, emm_block_info *ret_info);
    emm_status record_use(emm_deviceptr ptr, size_t size, emm_stream stream);
    emm_status get_stats(emm_stats *ret_stats);

private:
    void hold(CUgraph graph, LiveAllocations::Entry &entry);
    emm_status defer(std::unique_ptr<PendingFree> pending);
    void defer_what_can_go();
    void defer_or_free(LiveAllocations::Entry entry);
    void drop_all() noexcept;

    const emm_host &host_;
    emm_context *const context_;
    const CUcontext cuda_context_;
    const uint64_t context_id_;
    const int32_t device_;
    const std::shared_ptr<State> state_;
    GraphHold graphs_;
};

emm_status Manager::memalloc(size_t size, emm_stream, emm_deviceptr *ret_ptr) {
    defer_what_can_go();
    LiveAllocations::Entry entry = LiveAllocations::make_entry(size);
    CUdeviceptr ptr = 0;
    CUresult result;
    {
        const RelaxedCapture relaxed(state_->driver);
        result = state_->driver.cuMemAlloc(&ptr, size);
    }
    if (result != CUDA_SUCCESS) {
        char what[64];
        snprintf(what, sizeof what, "cuMemAlloc of %zu bytes", size);
        state_->allocations.failed();
        state_->driver.fail(result, what);
    }
    state_->allocations.add(std::move(entry), ptr);
    *ret_ptr = ptr;
    return EMM_OK;
}

emm_status Manager::memfree(emm_deviceptr ptr, size_t size, emm_stream stream) {
    defer_what_can_go();
    state_->driver.expect_own(cuda_context_, stream);
    auto pending = std::make_unique<PendingFree>(PendingFree{state_, {}});
    const CUgraph graph = capture_of(state_->driver, stream).graph;
    pending->entry = state_->allocations.take(ptr, size);
    if (pending->entry.empty()) {
        state_->allocations.refuse_free("passthrough", ptr, size);
    }
    if (graph) {
        hold(graph, pending->entry);
    }
    return pending->entry.empty() ? EMM_OK : defer(std::move(pending));
}

void Manager::hold(CUgraph graph, LiveAllocations::Entry &entry) {
    try {
        graphs_.hold(state_->driver, graph, entry);
    } catch (...) {
        state_->allocations.put_back(std::move(entry));
        throw;
    }
}

// If the queue has no room, the allocation is still the caller's.
emm_status Manager::defer(std::unique_ptr<PendingFree> pending) {
    const size_t size = pending->entry.mapped();
    const emm_status status = host_.defer(context_, &PendingFree::run, pending.get(), size);
    if (status < EMM_OK) {
        state_->allocations.put_back(std::move(pending->entry));
        return status;
    }
    pending.release(); // the queue's from here on, and perhaps gone already
    return EMM_OK;
}

// Frees the memory of graphs that are gone, and retries one free that the driver has refused.
void Manager::defer_what_can_go() {
    defer_or_free(state_->allocations.take_refused());
    while (graphs_.has_released()) {
        defer_or_free(graphs_.take_released());
    }
}

// No caller will free it another time: if the queue has no room, it goes at once.
void Manager::defer_or_free(LiveAllocations::Entry entry) {
    if (entry.empty()) {
        return;
    }
    const size_t size = entry.mapped();
    PendingFree *const it = new (std::nothrow) PendingFree{state_, {}};
    if (!it) {
        state_->give_back(std::move(entry));
        return;
    }
    it->entry = std::move(entry);
    if (host_.defer(context_, &PendingFree::run, it, size) < EMM_OK) {
        PendingFree::run(it, EMM_DEFERRED_RUN);
    }
}

// cuMemFree in a thread whose capture mode is global would invalidate captures of other streams.
emm_status PendingFree::run(void *argument, uint32_t what) {
    const std::unique_ptr<PendingFree> self(static_cast<PendingFree *>(argument));
    if (what != EMM_DEFERRED_RUN) {
        self->state->allocations.returned(self->entry.mapped());
        return EMM_OK;
    }
    const emm_deviceptr ptr = self->entry.key();
    const CUresult result = self->state->give_back(std::move(self->entry));
    if (result == CUDA_SUCCESS || is_late(result)) {
        return EMM_OK;
    }
    return emm_failf(&self->state->host, EMM_E_DRIVER, static_cast<int32_t>(result),
                     "cuMemFree of 0x%llx failed: error %d", ptr, static_cast<int>(result));
}

emm_status Manager::reset() {
    drop_all();
    return EMM_OK;
}

// Pending frees are not ours any more: emm has run them before it comes here. An address of a
// context that died may be another allocation's by now.
void Manager::drop_all() noexcept {
    const bool alive = state_->driver.is_alive(cuda_context_, context_id_);
    const auto drop = [&](LiveAllocations::Entry entry) {
        if (alive) {
            state_->give_back(std::move(entry));
        } else {
            state_->allocations.returned(entry.mapped());
        }
    };
    LiveAllocations::Allocations live = state_->allocations.take_all();
    while (!live.empty()) {
        drop(live.extract(live.begin()));
    }
    for (LiveAllocations::Entry entry = graphs_.take_any(); !entry.empty();
         entry = graphs_.take_any()) {
        drop(std::move(entry));
    }
}

emm_status Manager::query(emm_deviceptr ptr, emm_block_info *ret_info) {
    const emm_block_info info = state_->allocations.at(ptr, "passthrough", device_);
    emm_copy_sized(ret_info, &info);
    return EMM_OK;
}

// cuMemFree waits for every stream: there is nothing to remember.
emm_status Manager::record_use(emm_deviceptr ptr, size_t, emm_stream) {
    state_->allocations.at(ptr, "passthrough", device_); // throws
    return EMM_OK;
}

emm_status Manager::get_stats(emm_stats *ret_stats) {
    emm_stats stats;
    state_->allocations.fill(stats);
    emm_copy_sized(ret_stats, &stats);
    return EMM_OK;
}

} // namespace
} // namespace emm::passthrough

EMM_PLUGIN_ENTRY(const emm_host *) {
    static const emm_plugin table = emm::make_plugin<emm::passthrough::Manager>(
        "passthrough", EMM_VERSION, "Passes every request straight to the driver",
        EMM_PLUGIN_NEEDS_CURRENT | EMM_PLUGIN_CAPTURE);
    return &table;
}

#pragma once

#include "common/allocations.h"
#include "common/driver.h"
#include "common/graph_hold.h"

#include <atomic>
#include <cstdio>
#include <memory>
#include <utility>

namespace emm::common {

// Shared by plugins whose memory cuMemFree takes back, through emm's queue of pending
// deallocations: everything but the allocation itself.
//
//   1. A free has two halves. memfree takes the allocation out of the live ones at once, so that a
//      second free of the same address is refused; the driver gets it back when the queue is
//      flushed, from any thread, with any or no current context, or never if the context died.
//   2. The State is shared with pending frees, and belongs to both: a flush on another thread may
//      still be at work when the manager ends.
//   3. An allocation's record is made before the memory, so that nothing can fail in between.
//
// cuMemFree waits for all work that could still use the memory. So `stream` matters only while it
// captures (see graph_hold.h), and if it is another context's. cuMemFree need not wait for such a
// stream, so the free is refused.
class QueuedFrees {
public:
    emm_status memfree(emm_deviceptr ptr, size_t size, emm_stream stream);
    emm_status reset();
    emm_status trim(size_t keep_bytes, size_t *ret_released);
    emm_status query(emm_deviceptr ptr, emm_block_info *ret_info);
    emm_status record_use(emm_deviceptr ptr, size_t size, emm_stream stream);
    emm_status get_stats(emm_stats *ret_stats);
    emm_status reset_peaks();

protected:
    QueuedFrees(const char *name, const emm_host &host, const emm_context_info &info,
                uint64_t most_bytes = UINT64_MAX);
    ~QueuedFrees() { drop_all(); }
    QueuedFrees(const QueuedFrees &) = delete;
    QueuedFrees &operator=(const QueuedFrees &) = delete;

    struct State {
        State(const emm_host &the_host, uint64_t most)
            : host(the_host), driver(the_host), most_bytes(most) {}
        bool take_room(uint64_t size) noexcept;
        CUresult give_back(LiveAllocations::Entry entry);
        void forget(size_t size) noexcept;

        const emm_host &host;
        const Driver driver;
        LiveAllocations allocations;
        const uint64_t most_bytes;
        // Bytes taken from the driver, without those being given back.
        std::atomic<uint64_t> taken_bytes{0};
    };

    // One entry of the queue of pending deallocations.
    struct PendingFree {
        std::shared_ptr<State> state;
        LiveAllocations::Entry entry;
        bool beside_capture = false; // while a capture forbids work on the stream

        static emm_status run(void *argument, uint32_t what);
    };
    using Pending = std::unique_ptr<PendingFree>;

    // `call(&ptr)` calls the driver's `entry`.
    template <class Call>
    emm_status allocate(size_t size, const char *entry, Call call, emm_deviceptr *ret_ptr) {
        queue_what_can_go();
        LiveAllocations::Entry record = LiveAllocations::make_entry(size);
        CUdeviceptr ptr = 0;
        if (!state_->take_room(size)) {
            fail_beyond_max();
        }
        CUresult result = CUDA_SUCCESS;
        {
            const RelaxedCapture relaxed(state_->driver);
            result = call(&ptr);
        }
        if (result != CUDA_SUCCESS) {
            state_->taken_bytes -= size;
            fail(result, entry, size);
        }
        state_->allocations.add(std::move(record), ptr);
        *ret_ptr = ptr;
        return EMM_OK;
    }

    // The two halves of memfree. If `take` returns NULL, a graph keeps the memory, and the free is
    // done.
    Pending take(emm_deviceptr ptr, size_t size, emm_stream stream);
    // If the queue has no room, the allocation is still the caller's. But if its contents are gone
    // (`is_whole` false), it goes to the driver at once.
    emm_status queue(Pending pending, bool is_whole = true);

    const char *const name_;
    const std::shared_ptr<State> state_;

private:
    [[noreturn]] void fail(CUresult result, const char *entry, size_t size) const;
    [[noreturn]] void fail_beyond_max() const;
    void hold(CUgraph graph, LiveAllocations::Entry &entry);
    void queue_what_can_go();
    void queue_or_free(LiveAllocations::Entry entry);
    void drop_all() noexcept;

    const emm_host &host_;
    emm_context *const context_;
    const CUcontext cuda_context_;
    const uint64_t context_id_;
    const int32_t device_;
    GraphHold graphs_;
};

} // namespace emm::common

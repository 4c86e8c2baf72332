// The pool of one context. Member functions named after slots fill the plugin's table.
//
//   request.cpp  memalloc: serves a request, from the thread's magazine to the last stage
//   free.cpp     memfree: into which free pool
//   notices.cpp  notices from the program about its streams, and further uses
//   report.cpp   query, statistics, memory info
//   host.cpp     memhostalloc and memhostfree: pinned host memory
//   check.cpp    the invariants
//   pause.cpp    pause and resume
//   set_option.cpp  options that change
//   manager.cpp  create, reset, destroy, trim, exports, peers
//
// One lock protects everything here except the magazines. No driver call is made while it is held.
// Functions that take a Lock & may let go of it for a driver call; their callers look at everything
// anew afterwards.
#pragma once

#include "backing/backing.h"
#include "backing/exports.h"
#include "backing/host_copy.h"
#include "backing/pause_state.h"
#include "backing/pinned_memory.h"
#include "cache/thread_caches.h"
#include "cuda/served_context.h"
#include "heap/device_memory.h"
#include "order/cross_context.h"
#include "order/stream_order.h"
#include "policy/growth.h"

#include <list>
#include <memory>
#include <mutex>
#include <optional>

namespace emm::pool {

class Manager : private FreedMemory {
public:
    Manager(const emm_host &host, const emm_context_info &info, const char *const *texts);
    ~Manager();
    Manager(const Manager &) = delete;
    Manager &operator=(const Manager &) = delete;

    // Nearly every call ends in one of these two. The first takes memory from the thread's
    // magazine, or returns 0; the second gives memory back to it, or returns false.
    uint64_t take_from_magazine(size_t size, emm_stream stream) const;
    bool give_to_magazine(emm_deviceptr ptr, size_t size, emm_stream stream) const;

    emm_status memalloc(size_t size, emm_stream stream, emm_deviceptr *ret_ptr);
    emm_status memfree(emm_deviceptr ptr, size_t size, emm_stream stream);
    emm_status memhostalloc(size_t size, uint32_t flags, void **ret_host,
                            emm_deviceptr *ret_device);
    emm_status memhostfree(void *host, size_t size, uint32_t flags, emm_stream stream);
    emm_status get_memory_info(size_t *ret_free, size_t *ret_total);
    emm_status get_ipc_handle(emm_deviceptr ptr, size_t size, emm_ipc_handle *ret_handle);
    emm_status release_ipc_handle(const emm_ipc_handle *handle);
    emm_status reset();
    emm_status defer_cleanup(uint32_t enter);
    emm_status trim(size_t keep_bytes, size_t *ret_released);
    emm_status query(emm_deviceptr ptr, emm_block_info *ret_info);
    emm_status record_use(emm_deviceptr ptr, size_t size, emm_stream stream);
    emm_status stream_notice(emm_stream stream, uint32_t notice);
    emm_status set_access(int32_t peer_device, uint32_t flags);
    emm_status get_stats(emm_stats *ret_stats);
    emm_status reset_peaks();
    emm_status pause(uint32_t flags, size_t *ret_released);
    emm_status resume(uint32_t flags);
    emm_status set_option(const char *key, const char *text);
    emm_status read_paused(emm_deviceptr ptr, size_t size, void *host);
    static emm_status get_device_total(const emm_host &host, int32_t device, size_t device_bytes,
                                       const char *const *texts, size_t *ret_total);
    static emm_status check_options(const emm_host &host, const char *const *texts);

private:
    class Request; // a request that no magazine can serve: request.h

    void drop_spares();
    void drop_spares(StreamPool &pool) override { memory_.slabs.drop_spares(pool); }

    // --- free.cpp
    void close_magazines(StreamPool &pool) override { caches_.close(&pool); }
    bool free_block(Magazine &magazine, emm_deviceptr ptr, size_t size);
    emm_status free_place(emm_deviceptr ptr, size_t size, emm_stream stream,
                          const uint32_t *host_flags);
    BlockOrSlot allocation_at(emm_deviceptr ptr) const;
    bool give_to_emptied_magazine(Magazine &magazine, BlockOrSlot allocation);
    emm_status identify_to_free(emm_stream stream, Caller &ret_caller);
    StreamPool &pool_to_free_on(Caller &caller, StreamPool &unordered);
    emm_status refuse_free(emm_deviceptr ptr, bool pinned);
    StreamPool *release(BlockOrSlot allocation, StreamPool &pool);
    void give(BlockOrSlot allocation, StreamPool &pool) override;
    void hold(BlockOrSlot allocation) override;
    void give_held(BlockOrSlot allocation, StreamPool &pool) override;
    void complete(StreamPool &pool, uint64_t tag) override;
    void disband(StreamPool &pool) override { memory_.slabs.disband(pool); }
    void maintain(Lock &lock, StreamPool &pool, const Caller *caller);
    void do_maintenance(Lock &lock, StreamPool &pool, const Caller *caller);

    // --- host.cpp
    emm_status refuse_host(CUresult result);

    // --- notices.cpp
    emm_status identify(emm_stream stream, Caller &ret_caller);
    StreamPool &pool_of(const Caller &caller);

    // --- pause.cpp
    CUresult pause_backing(Lock &lock, uint32_t flags, size_t *ret_released);
    CUresult copy_and_pause(Lock &lock, bool keeps);
    void release_idle_copy(std::unique_lock<std::mutex> copying);
    emm_status refuse_paused(const char *slot);

    // --- set_option.cpp
    uint64_t limit_of_caches(uint64_t of_device) const;

    // --- report.cpp
    std::string fault() const;
    void check();
    void check_unlocked();

    // --- manager.cpp
    void take_initial();
    // Without `keep_bytes`: the idle memory that the options allow is kept.
    size_t release_idle(Lock &lock, std::optional<uint64_t> keep_bytes = {});
    void forget_everything();

    // set_option changes some, with the lock held; reading the others needs no lock.
    Options options_;
    ServedContext served_;
    const emm_host &host_ = served_.host;

    StreamOrder order_{served_, *this};
    CrossContext cross_context_{served_, order_};

    // Every call reads these members. No member that calls write is near.
    alignas(128) const uint64_t identity_; // never used by another manager of the process
    std::atomic<uint64_t> serving_;        // the same; 0 once nothing is reused any more
    DeviceMemory memory_{order_.common(), order_.clock()};

    alignas(128) Moves moves_;
    PauseState pause_{served_, serving_, identity_};
    ThreadCaches caches_{order_, memory_, pinned_, identity_, serving_, limit_of_caches(0)};
    PinnedBound pinned_bound_{options_.host_max};
    const HostNode host_node_{served_, options_.nearest_host_node};
    HostCopy copy_{served_, pinned_bound_, host_node_}; // the content of a paused pool
    std::mutex copy_mutex_;                             // held while a call uses copy_
    bool copy_is_idle_ = false;                         // its memory is for no later pause
    PinnedMemory pinned_{pinned_bound_, host_node_, order_,  cross_context_,
                         caches_,       moves_,     serving_};
    const std::unique_ptr<Backing> backing_ =
        Backing::make(options_, order_, memory_, caches_, moves_);
    Holdings &holdings_ = backing_->holdings();
    Exports exports_{options_, order_, memory_.heap, *backing_};
};

inline uint64_t Manager::take_from_magazine(size_t size, emm_stream stream) const {
    Magazine *magazine = Thread::magazine_for(serving_.load(std::memory_order_relaxed), stream);
    if (!magazine || !magazine->lock.enter()) [[unlikely]] {
        return 0;
    }
    const uint64_t address = magazine->take_newest(size);
    magazine->lock.leave();
    return address;
}

inline bool Manager::give_to_magazine(emm_deviceptr ptr, size_t size, emm_stream stream) const {
    Magazine *magazine = Thread::magazine_for(serving_.load(std::memory_order_relaxed), stream);
    if (!magazine || !magazine->lock.enter()) [[unlikely]] {
        return false;
    }
    const bool done = magazine->give(memory_.heap, ptr, size);
    magazine->lock.leave();
    return done;
}

} // namespace emm::pool

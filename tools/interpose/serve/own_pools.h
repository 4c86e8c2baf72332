// Memory pools that the program makes itself (cuMemPoolCreate). A pool that promises no more than
// the plugin's pools do is served by the plugin: by a named pool of emm's, its manager, in each
// CUDA context that allocates from it. The driver's pool still exists, with the handle that the
// program knows. Any thread may call.
#pragma once

#include "contexts.h"

#include <map>

namespace emm::run {

// Whether a plugin with these capabilities (EMM_PLUGIN_*) is better than the driver's own pool: it
// keeps freed memory in stream order, and does not call CUDA for each allocation.
bool is_worth_serving(uint64_t capabilities);

// Whether the pool is of device memory, without a limit, without a way to other processes, and
// without settings newer than emm.
bool is_plain(const CUmemPoolProps &properties);

// The settings of a pool that decide who serves it.
struct PoolSettings {
    uint64_t release_threshold = 0;
    unsigned refused_reuse = 0; // a bit for each CU_MEMPOOL_ATTR_REUSE_* that is off

    void set(CUmemPool_attribute attribute, const void *value);
    // A plugin gives nothing back by itself and reuses whatever is complete: so the pool has to
    // keep all of the device's memory, and to allow each way of reuse.
    bool allow_plugin(uint64_t device_total) const {
        return release_threshold >= device_total && refused_reuse == 0;
    }
};

// The highest value since a moment, at least `now`. `before`: the highest value before that moment;
// `highest`: of all time.
uint64_t high_since(uint64_t before, uint64_t highest, uint64_t now);

class OwnPools {
public:
    explicit OwnPools(Contexts &contexts) : contexts_(contexts) {}

    // The program has made a pool, or set something of it. A pool that finds no memory for its
    // record is the driver's.
    void made(CUmemoryPool pool, const CUmemPoolProps &properties) noexcept;
    void set(CUmemoryPool pool, CUmemPool_attribute attribute, const void *value);
    void set_access(CUmemoryPool pool, CUdevice peer, uint32_t access);

    // The driver has destroyed the pool. Its id was asked for before, because another thread may
    // have got the handle. Allocated memory stays, and goes back to the driver as it is freed.
    uint64_t id_of(CUmemoryPool pool); // 0: emm does not serve it
    void ended(uint64_t id);

    // The manager that serves the pool in a context. NULL: the driver serves it.
    emm_context *manager_in(emm_context *context, CUmemoryPool pool) {
        if (latest_.pool == pool && latest_.context == context &&
            latest_.epoch == contexts_.epoch()) [[likely]] {
            return latest_.manager;
        }
        return find_manager(context, pool);
    }

    std::vector<emm_context *> all_managers();
    std::vector<emm_context *> managers_of(CUmemoryPool pool);
    CUmemoryPool pool_of(emm_context *manager); // NULL: the pool has ended

    // The statistics. The peaks count from the time when the manager got its pool, or when the
    // program last reset the pool's peaks.
    emm_stats stats_of(emm_context *manager);

    // Managers whose pool has ended, or is served no longer, give back memory whose work is
    // complete. A manager does so too when its last memory is freed.
    bool has_leaving() const { return any_leaving_.load(std::memory_order_acquire); }
    void trim_leaving() noexcept;
    void freed_to(emm_context *manager) noexcept;

    void forget(const emm_context *context); // the context ends, with its managers

private:
    using Access = std::map<CUdevice, uint32_t>; // EMM_ACCESS_*, by peer
    struct Pool {
        uint64_t id = 0; // no other pool of the process has it
        CUdevice device = 0;
        PoolSettings settings;
        Access access;
    };
    struct Manager {
        emm_context *context = nullptr; // the CUDA context's record
        uint64_t pool = 0;              // by id
        bool leaving = false;
        Access access;
        uint64_t live_before = 0, reserved_before = 0; // peaks that are not the pool's
        bool ended = false;                            // the pool has ended: free for another pool
    };
    struct Latest {
        CUmemoryPool pool = nullptr;
        emm_context *context = nullptr, *manager = nullptr;
        uint64_t epoch = 0; // none
    };
    [[gnu::tls_model("initial-exec")]] static constinit thread_local Latest latest_;

    emm_context *find_manager(emm_context *context, CUmemoryPool pool);
    void trim(emm_context *manager) noexcept;
    emm_context *leaving_after(emm_context *manager); // in the order of the map
    // The mutex is held.
    emm_context *take_manager(emm_context *context, const Pool &pool);
    emm_context *find_unused(emm_context *context);
    emm_context *make_manager(emm_context *context);
    void set_leaving(uint64_t pool, bool leaving);
    void note_leaving();
    template <class Visit> void each_of(uint64_t pool, Visit visit);

    Contexts &contexts_;
    // Held while emm makes a manager or is told of access. Not held while memory goes back to the
    // driver, which may wait for another thread.
    std::mutex mutex_;
    std::map<CUmemoryPool, Pool> pools_;
    std::map<emm_context *, Manager> managers_;
    uint64_t last_id_ = 0;
    std::atomic<bool> any_leaving_{false};
};

} // namespace emm::run

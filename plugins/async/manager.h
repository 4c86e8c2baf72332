#pragma once

#include "async/driver.h"
#include "async/pool.h"
#include "common/graph_hold.h"
#include "common/stream_ordered.h"

#include <atomic>
#include <map>
#include <mutex>
#include <vector>

namespace emm::async {

struct Options {
    uint64_t max_bytes = 0; // 0: no limit
    uint64_t release_threshold = UINT64_MAX;
    bool ipc = false; // the pool can be shared
};

class Manager : public common::StreamOrdered<Driver> {
public:
    Manager(const emm_host &host, const emm_context_info &info, const char *const *option_texts);
    ~Manager();

    emm_status memalloc(size_t size, emm_stream stream, emm_deviceptr *ret_ptr);
    emm_status memfree(emm_deviceptr ptr, size_t size, emm_stream stream);
    emm_status get_memory_info(size_t *ret_free, size_t *ret_total);
    emm_status get_ipc_handle(emm_deviceptr ptr, size_t size, emm_ipc_handle *ret_handle);
    emm_status release_ipc_handle(const emm_ipc_handle *handle);
    emm_status reset();
    emm_status defer_cleanup(uint32_t enter);
    emm_status trim(size_t keep_bytes, size_t *ret_released);
    emm_status set_access(int32_t peer_device, uint32_t flags);
    emm_status get_stats(emm_stats *ret_stats);
    static emm_status get_device_total(const emm_host &host, int32_t device, size_t device_bytes,
                                       const char *const *option_texts, size_t *ret_total);

    static const emm_option options[];

private:
    Manager(const emm_host &host, const emm_context_info &info, const Options &options);

    void refuse_what_never_fits(size_t size);
    void return_unused() noexcept;
    CUresult allocate(size_t size, emm_stream stream, CUdeviceptr *ret_ptr);
    CUresult allocate_for_any(size_t size, CUdeviceptr *ret_ptr);

    void release(Entry &entry, emm_stream stream, bool used_elsewhere);
    void release_behind_everything(Entry &entry);
    void release_postponed() noexcept;
    void given_back(CUresult result, Entry &entry);
    void note_export(emm_deviceptr base, const emm_ipc_handle &handle);
    Entry end_export(const emm_ipc_handle &handle);
    bool hold_back(Entry &entry);
    Entry take_held_back() noexcept;
    void drop(Entry entry, bool alive) noexcept;
    CUresult order_frees() noexcept;
    CUresult wait_beside_captures() noexcept;
    void drop_all(bool alive) noexcept;
    void apply_threshold();

    struct Shared {
        std::vector<emm_ipc_handle> exports;
        Entry freed; // while there are exports
    };

    const emm_host &host_;
    emm_context *const context_;
    const Options options_;
    const uint64_t most_bytes_; // the device's memory
    const Pool pool_;
    common::GraphHold graphs_;

    std::mutex shared_mutex_;
    std::map<emm_deviceptr, Shared> shared_; // by where the allocation begins
    std::atomic<bool> has_shared_{false};
};

} // namespace emm::async

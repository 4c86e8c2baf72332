#pragma once

#include "common/context_wait.h"
#include "common/private_stream.h"
#include "passthrough/allocations.h"
#include "rmm/driver.h"
#include "rmm/resources.h"

#include <atomic>
#include <map>
#include <memory>
#include <mutex>
#include <set>

namespace emm::over_rmm {

class Manager {
public:
    Manager(const emm_host &host, const emm_context_info &info, const char *const *option_texts);
    ~Manager();
    Manager(const Manager &) = delete;
    Manager &operator=(const Manager &) = delete;

    emm_status memalloc(size_t size, emm_stream stream, emm_deviceptr *ret_ptr);
    emm_status memfree(emm_deviceptr ptr, size_t size, emm_stream stream);
    emm_status defer_cleanup(uint32_t enter);
    emm_status trim(size_t keep_bytes, size_t *ret_released);
    emm_status get_memory_info(size_t *ret_free, size_t *ret_total);
    emm_status get_ipc_handle(emm_deviceptr ptr, size_t size, emm_ipc_handle *ret_handle);
    emm_status release_ipc_handle(const emm_ipc_handle *handle);
    emm_status query(emm_deviceptr ptr, emm_block_info *ret_info);
    emm_status record_use(emm_deviceptr ptr, size_t size, emm_stream stream);
    emm_status stream_notice(emm_stream stream, uint32_t notice);
    emm_status get_stats(emm_stats *ret_stats);
    static emm_status get_device_total(const emm_host &host, int32_t device, size_t device_bytes,
                                       const char *const *option_texts, size_t *ret_total);
    static emm_status check_options(const emm_host &host, const char *const *option_texts);

    static const emm_option options[];

private:
    using LiveAllocations = passthrough::LiveAllocations;
    using Uses = std::set<emm_deviceptr>;

    struct Reserved {
        uint64_t bytes, peak_bytes;
    };
    Reserved reserved() const;
    void empty_pool(bool alive) noexcept;
    void refuse_capture(emm_stream stream) const;
    void *allocate(size_t size, emm_stream stream);
    Uses::node_type forget_other_uses(emm_deviceptr ptr) noexcept;
    void remember_other_uses(Uses::node_type use) noexcept;
    emm_stream told_apart(emm_stream stream);
    bool release_behind_everything(LiveAllocations::Entry &entry);
    void give_back(LiveAllocations::Entry &entry, emm_stream stream) noexcept;
    void postpone(LiveAllocations::Entry &entry) noexcept;
    void release_postponed() noexcept;

    const Driver driver_;
    const CUcontext cuda_context_;
    const uint64_t context_id_;
    const int32_t device_;
    const Options options_;
    const uint64_t device_bytes_;
    const common::PrivateStream supply_;  // allocations that any stream may use
    const common::PrivateStream returns_; // frees that wait for everything
    common::ContextWait wait_;
    std::unique_ptr<Taken> taken_;
    std::unique_ptr<Resource> resource_;
    LiveAllocations allocations_;

    std::mutex mutex_;
    LiveAllocations::Allocations postponed_;              // until no capture is announced
    Uses used_elsewhere_;                                 // by record_use
    std::map<emm_stream, unsigned long long> stream_ids_; // of the streams that an arena has seen
    std::atomic<bool> has_postponed_{false};
    std::atomic<uint32_t> sections_{0}; // of deferred clean-up
};

} // namespace emm::over_rmm

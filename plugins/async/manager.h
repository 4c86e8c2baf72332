#pragma once

#include "async/pool.h"
#include "common/source_manager.h"

namespace emm::async {

struct Options {
    uint64_t max_bytes = 0; // 0: no limit
    uint64_t release_threshold = UINT64_MAX;
    bool ipc = false; // other processes can open the pool
};

class Manager : public common::SourceManager<Pool> {
public:
    Manager(const emm_host &host, const emm_context_info &info, const char *const *option_texts);
    ~Manager() { end(); }

    emm_status memfree(emm_deviceptr ptr, size_t size, emm_stream stream);
    emm_status get_memory_info(size_t *ret_free, size_t *ret_total);
    emm_status get_ipc_handle(emm_deviceptr ptr, size_t size, emm_ipc_handle *ret_handle);
    emm_status release_ipc_handle(const emm_ipc_handle *handle);
    emm_status defer_cleanup(uint32_t enter);
    emm_status set_access(int32_t peer_device, uint32_t flags);
    emm_status get_stats(emm_stats *ret_stats);
    emm_status reset_peaks();
    static emm_status get_device_total(const emm_host &host, int32_t device, size_t device_bytes,
                                       const char *const *option_texts, size_t *ret_total);
    static emm_status check_options(const emm_host &host, const char *const *option_texts);

    static const emm_option options[];

private:
    Manager(const emm_host &host, const emm_context_info &info, const Options &options);

    void apply_threshold();

    const emm_host &host_;
    emm_context *const context_;
    const Options options_;
    std::atomic<bool> has_old_threshold_{false};
};

} // namespace emm::async

#pragma once

#include "common/returns.h"
#include "common/stream_ordered.h"
#include "rmm/driver.h"
#include "rmm/resources.h"

#include <map>
#include <memory>
#include <mutex>

namespace emm::over_rmm {

class Manager : public common::StreamOrdered<Driver> {
public:
    Manager(const emm_host &host, const emm_context_info &info, const char *const *option_texts);
    ~Manager();

    emm_status memalloc(size_t size, emm_stream stream, emm_deviceptr *ret_ptr);
    emm_status memfree(emm_deviceptr ptr, size_t size, emm_stream stream);
    emm_status defer_cleanup(uint32_t enter);
    emm_status trim(size_t keep_bytes, size_t *ret_released);
    emm_status get_memory_info(size_t *ret_free, size_t *ret_total);
    emm_status get_ipc_handle(emm_deviceptr ptr, size_t size, emm_ipc_handle *ret_handle);
    emm_status release_ipc_handle(const emm_ipc_handle *handle);
    emm_status get_stats(emm_stats *ret_stats);
    emm_status reset_peaks();
    static emm_status get_device_total(const emm_host &host, int32_t device, size_t device_bytes,
                                       const char *const *option_texts, size_t *ret_total);
    static emm_status check_options(const emm_host &host, const char *const *option_texts);

    static const emm_option options[];

private:
    struct Reserved {
        uint64_t bytes, peak_bytes;
    };
    Reserved reserved() const;
    void empty_pool(bool alive) noexcept;
    void refuse_capture(emm_stream stream) const;
    void *allocate(size_t size, emm_stream stream);
    void *allocate_or_reclaim(size_t size, emm_stream stream);
    emm_stream arena_stream(emm_stream stream);
    void give_back(Entry &entry, emm_stream stream) noexcept;
    void release_postponed(bool beside_captures = false) noexcept;

    const Options options_;
    const uint64_t device_bytes_;
    std::unique_ptr<Taken> taken_;
    std::unique_ptr<Resource> resource_;
    common::Returns under_way_;

    std::mutex ids_mutex_;
    std::map<emm_stream, unsigned long long> stream_ids_; // of streams that an arena has seen
};

} // namespace emm::over_rmm

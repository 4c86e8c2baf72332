#pragma once

#include "common/allocations.h"
#include "common/streams.h"

#include <algorithm>
#include <atomic>
#include <mutex>
#include <set>
#include <utility>

namespace emm::common {

// The value of a size option; `otherwise` if it is not given. The host has checked it.
inline uint64_t size_option(const emm_option *options, const char *const *texts, const char *name,
                            uint64_t otherwise) {
    const char *const text = emm_option_text(options, texts, name);
    if (text) {
        emm_parse_size(text, &otherwise);
    }
    return otherwise;
}

// The option `max`; `without` if it is not given. Throws if the option allows nothing.
inline uint64_t max_option(const char *plugin, const emm_option *options, const char *const *texts,
                           uint64_t without) {
    const uint64_t max_bytes = size_option(options, texts, "max", UINT64_MAX);
    if (max_bytes == 0) {
        refuse(EMM_E_PLUGIN_SPEC, "%s: option max: expected at least 1, found 0", plugin);
    }
    return max_bytes != UINT64_MAX ? max_bytes : without;
}

// get_device_total of a plugin with the option `max`; 0: no limit.
inline emm_status limited_total(size_t device_bytes, uint64_t max_bytes, size_t *ret_total) {
    *ret_total = max_bytes == 0 ? device_bytes : std::min<uint64_t>(device_bytes, max_bytes);
    return EMM_OK;
}

// Shared by plugins whose memory is allocated and freed on streams: the live allocations, their
// uses on other streams, and frees that wait for the end of captures. `Entries` are the driver's.
template <class Entries> class StreamOrdered {
public:
    emm_status query(emm_deviceptr ptr, emm_block_info *ret_info) {
        const emm_block_info info = allocation_at(ptr);
        emm_copy_sized(ret_info, &info);
        return EMM_OK;
    }

    emm_status record_use(emm_deviceptr ptr, size_t, emm_stream) {
        const emm_deviceptr base = allocation_at(ptr).base;
        const std::lock_guard lock(mutex_);
        used_elsewhere_.insert(base);
        has_used_elsewhere_ = true;
        return EMM_OK;
    }

    emm_status stream_notice(emm_stream, uint32_t notice) {
        wait_.notice(notice);
        return EMM_OK;
    }

protected:
    using Allocations = LiveAllocations::Allocations;
    using Entry = LiveAllocations::Entry;

    StreamOrdered(const char *name, const emm_host &host, const emm_context_info &info)
        : name_(name), driver_(host), cuda_context_(info.cuda_context),
          context_id_(info.context_id), device_(info.device),
          supply_(driver_, cuda_context_, context_id_),
          returns_(driver_, cuda_context_, context_id_), wait_(driver_, cuda_context_) {}

    // The live allocation that holds `ptr`; throws if there is none.
    emm_block_info allocation_at(emm_deviceptr ptr) const {
        return allocations_.at(ptr, name_, device_);
    }

    // Takes the allocation at `ptr` out of the live ones. Before another thread can have the
    // address, forgets its uses on other streams (record_use). Then `release` frees it, and is told
    // whether there were such uses. If `release` throws, nothing has changed.
    template <class Release> void take_back(emm_deviceptr ptr, size_t size, Release release) {
        Entry entry = allocations_.take(ptr, size);
        if (entry.empty()) {
            allocations_.refuse_free(name_, ptr, size);
        }
        std::set<emm_deviceptr>::node_type elsewhere;
        if (has_used_elsewhere_) {
            const std::lock_guard lock(mutex_);
            elsewhere = used_elsewhere_.extract(ptr);
            has_used_elsewhere_ = !used_elsewhere_.empty();
        }
        try {
            release(entry, !elsewhere.empty());
        } catch (...) {
            const std::lock_guard lock(mutex_);
            used_elsewhere_.insert(std::move(elsewhere));
            has_used_elsewhere_ = !used_elsewhere_.empty();
            allocations_.put_back(std::move(entry));
            throw;
        }
    }
    void forget_all_uses() noexcept {
        const std::lock_guard lock(mutex_);
        used_elsewhere_.clear();
        has_used_elsewhere_ = false;
    }

    // Keeps a free until no capture is announced.
    void postpone(Entry &entry) noexcept {
        const std::lock_guard lock(mutex_);
        postponed_.insert(std::move(entry));
        entry = {};
        has_postponed_ = true;
    }
    Allocations take_postponed() noexcept {
        const std::lock_guard lock(mutex_);
        has_postponed_ = false;
        return std::exchange(postponed_, {});
    }

    // Orders later work on `returns_` behind all work of the context. False: a capture is
    // announced, and would be invalidated. Throws if the driver fails.
    bool wait_for_everything() {
        const CUresult result = wait_.unless_capturing(returns_);
        if (result == CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED) {
            return false;
        }
        if (!is_late(result)) {
            driver_.check(result, "ordering a free behind all work of the context");
        }
        return true;
    }

    // get_memory_info: reserved memory that is not used counts as free too; with `used` at most
    // `max_bytes`, unless 0, and at most the total, which a bound may have lowered.
    emm_status tell_memory(uint64_t reserved, uint64_t used, uint64_t max_bytes, size_t *ret_free,
                           size_t *ret_total) const {
        auto [free, total] = device_memory();
        free += reserved - std::min(reserved, used);
        if (max_bytes != 0) {
            total = std::min<uint64_t>(total, max_bytes);
        }
        *ret_free = std::min<uint64_t>(free, total - std::min<uint64_t>(total, used));
        *ret_total = total;
        return EMM_OK;
    }

    // Free and total memory of the device, as the driver reports.
    std::pair<size_t, size_t> device_memory() const {
        const RelaxedCapture relaxed(driver_);
        size_t free = 0, total = 0;
        driver_.check(driver_.cuMemGetInfo(&free, &total), "cuMemGetInfo");
        return {free, total};
    }

    const char *const name_;
    const Entries driver_;
    const CUcontext cuda_context_;
    const uint64_t context_id_;
    const int32_t device_;
    const PrivateStream supply_;  // allocations that any stream may use
    const PrivateStream returns_; // frees that wait for everything
    ContextWait wait_;
    LiveAllocations allocations_;
    std::atomic<uint32_t> sections_{0}; // of deferred clean-up
    std::atomic<bool> has_postponed_{false};

private:
    std::mutex mutex_;
    Allocations postponed_;                  // until no capture is announced
    std::set<emm_deviceptr> used_elsewhere_; // by record_use
    std::atomic<bool> has_used_elsewhere_{false};
};

} // namespace emm::common

// guard's own use of the device. Its blocks come from the driver itself, and the plugin below knows
// nothing of them. The plugin's maximum holds for them too.
#pragma once

#include "layers/guard/mapping.h"

#include <emm/plugin_helpers.h>

#include <algorithm>
#include <mutex>

namespace emm::guard {

class Bound {
public:
    explicit Bound(const emm_context_info &info)
        : below(info.below), below_managers(info.below_managers) {}

    // For a mapping that is about to be made. Throws if it exceeds the bound; if the plugin tells
    // no maximum, there is none.
    void take(Mapping &mapping) {
        const size_t bytes = mapping.layout.mapped;
        size_t free = 0, total = 0;
        const bool is_told = EMM_BELOW(this, get_memory_info, &free, &total) >= EMM_OK;
        const std::lock_guard lock(mutex_);
        if (is_told && (bytes > total || reserved_ > total - bytes)) {
            common::refuse(EMM_E_OUT_OF_MEMORY,
                           "layer guard: a block takes %zu bytes, and %zu of %zu are taken", bytes,
                           reserved_, total);
        }
        reserved_ += bytes;
        mapping.taken = bytes;
    }

    // False: something of the mapping stays, and counts, until another try.
    bool undo(Mapping &mapping, const GuardDriver &driver, CUstream stream) noexcept {
        if (mapping.undo(driver, stream) != CUDA_SUCCESS) {
            note_peak();
            return false;
        }
        give(mapping.taken);
        return true;
    }

    // Only memory that was taken counts for the peak; failed requests do not.
    void note_peak() noexcept {
        const std::lock_guard lock(mutex_);
        peak_ = std::max(peak_, reserved_);
    }

    void give(size_t bytes) noexcept {
        const std::lock_guard lock(mutex_);
        reserved_ -= bytes;
    }

    emm_status tell(size_t *ret_free, size_t *ret_total) {
        const emm_status status = EMM_BELOW(this, get_memory_info, ret_free, ret_total);
        if (status >= EMM_OK) {
            const std::lock_guard lock(mutex_);
            *ret_free = std::min(*ret_free, *ret_total - std::min(reserved_, *ret_total));
        }
        return status;
    }

    void reset_peak() {
        const std::lock_guard lock(mutex_);
        peak_ = reserved_;
    }

    void fill(emm_stats &stats) {
        const std::lock_guard lock(mutex_);
        stats.reserved_bytes = reserved_;
        stats.peak_reserved_bytes = peak_;
    }

private:
    const emm_plugin *const below;
    emm_manager *const *const below_managers;
    std::mutex mutex_;
    size_t reserved_ = 0, peak_ = 0;
};

} // namespace emm::guard

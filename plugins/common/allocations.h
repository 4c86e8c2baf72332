#pragma once

#include <emm/plugin.h>

#include <atomic>
#include <map>
#include <mutex>

namespace emm::common {

// The live allocations of one manager, by address, and what get_stats says about them. What has
// been taken out counts as pending until the driver has it back.
class LiveAllocations {
public:
    // One allocation in transit: key() is its address, mapped() its size.
    using Allocations = std::map<emm_deviceptr, size_t>;
    using Entry = Allocations::node_type;

    // An entry is made before the memory, so that adding it cannot fail.
    static Entry make_entry(size_t size);
    void add(Entry entry, emm_deviceptr ptr) noexcept;

    // Takes out the allocation that begins at `ptr`; empty if none does, or if it was asked for
    // with another size than `size`, which is 0 if the caller does not know it.
    Entry take(emm_deviceptr ptr, size_t size) noexcept;
    // Throws why take() has found nothing, in `plugin`'s name.
    [[noreturn]] void refuse_free(const char *plugin, emm_deviceptr ptr, size_t size) const;
    void put_back(Entry entry) noexcept;
    Allocations take_all() noexcept;
    // Memory that the driver refused to take back. It stays pending; the caller tries one entry at
    // a time again. take_refused is empty, at the cost of one look, if the driver refused none.
    void keep_refused(Entry entry) noexcept;
    Entry take_refused() noexcept;

    // The driver has `size` bytes back that had been taken out.
    void returned(size_t size) noexcept;
    void failed() noexcept;

    // The allocation that holds `ptr`; false if none does.
    bool find(emm_deviceptr ptr, emm_block_info &ret_info) const noexcept;
    // The same as `query` tells it; throws if there is none.
    emm_block_info at(emm_deviceptr ptr, const char *plugin, int32_t device) const;
    void fill(emm_stats &stats) const noexcept;
    // For reset_peaks. `cached`: what the manager has reserved beside this.
    void reset_peaks(uint64_t cached = 0) noexcept;
    uint64_t live_bytes() const noexcept;

private:
    void insert_locked(Entry entry) noexcept;

    mutable std::mutex mutex_;
    Allocations live_, refused_;
    std::atomic<bool> has_refused_{false};
    emm_stats stats_ = {};
};

} // namespace emm::common

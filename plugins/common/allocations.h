#pragma once

#include <emm/plugin.h>

#include <atomic>
#include <map>
#include <mutex>

namespace emm::common {

// The live allocations of one manager, by address, and their share of get_stats. An allocation that
// has been taken out counts as pending until the driver has it back.
class LiveAllocations {
public:
    // One allocation in transit: key() is its address, mapped() its size.
    using Allocations = std::map<emm_deviceptr, size_t>;
    using Entry = Allocations::node_type;

    // An entry is made before the memory, so that adding the entry cannot fail.
    static Entry make_entry(size_t size);
    void add(Entry entry, emm_deviceptr ptr) noexcept;

    // Takes out the allocation that begins at `ptr`. Empty if there is none, or if `size` is
    // neither 0 (unknown) nor the size that was asked for.
    Entry take(emm_deviceptr ptr, size_t size) noexcept;
    // Throws the reason why take() found nothing, in `plugin`'s name.
    [[noreturn]] void refuse_free(const char *plugin, emm_deviceptr ptr, size_t size) const;
    void put_back(Entry entry) noexcept;
    // Takes out what is live and what was refused.
    Allocations take_all() noexcept;
    // Keeps memory that the driver refused to take back. It stays pending; the caller retries one
    // entry at a time. If the driver refused none, take_refused costs one look, and is empty.
    void keep_refused(Entry entry) noexcept;
    Entry take_refused() noexcept;

    // Counts `size` bytes, taken out before, that the driver has back.
    void returned(size_t size) noexcept;
    void failed() noexcept;

    // Finds the allocation that holds `ptr`; false if there is none.
    bool find(emm_deviceptr ptr, emm_block_info &ret_info) const noexcept;
    // The allocation that holds `ptr`, with everything that `query` reports. Throws if no
    // allocation holds `ptr`.
    emm_block_info at(emm_deviceptr ptr, const char *plugin, int32_t device) const;
    void fill(emm_stats &stats) const noexcept;
    void reset_peaks() noexcept;
    uint64_t live_bytes() const noexcept;

private:
    void insert_locked(Entry entry) noexcept;

    mutable std::mutex mutex_;
    Allocations live_, refused_;
    std::atomic<bool> has_refused_{false};
    emm_stats stats_ = {};
};

} // namespace emm::common

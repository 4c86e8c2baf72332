#pragma once

#include <emm/plugin.h>

#include <cstdint>
#include <map>
#include <mutex>
#include <set>
#include <vector>

namespace emm::core {

// What a context's manager has been told and goes on with: for a plugin without a reset slot, whose
// next manager is told the same. Sections are counted by PendingDeallocations.
class Announced {
public:
    using Accesses = std::map<int32_t, uint32_t>; // EMM_ACCESS_*, of each peer
    // In the order in which a new manager is told.
    struct Notice {
        emm_stream stream;
        uint32_t notice; // EMM_STREAM_REGISTERED or EMM_STREAM_CAPTURE_BEGINS
    };

    // These may throw std::bad_alloc, and change nothing then.
    void add_stream(emm_stream stream);
    void add_capture(emm_stream stream);
    void set_access(int32_t device, uint32_t flags);

    void remove_stream(emm_stream stream) noexcept;
    void remove_capture(emm_stream stream) noexcept; // one of them

    uint32_t access(int32_t device) const;
    Accesses accesses() const;
    std::vector<Notice> notices() const; // streams before captures

private:
    mutable std::mutex mutex_;
    std::set<emm_stream> streams_;
    std::multiset<emm_stream> captures_;
    Accesses accesses_;
};

} // namespace emm::core

#pragma once

#include <emm/plugin.h>

#include <compare>
#include <cstdint>
#include <map>
#include <mutex>
#include <optional>
#include <set>
#include <string>
#include <vector>

namespace emm::core {

// The notices, peer accesses and changed options that hold for a context. A manager that is made
// later is told the same. A group's own record has the notices of all its pools.
// PendingDeallocations counts sections.
class Announced {
public:
    using Accesses = std::map<int32_t, uint32_t>;                      // EMM_ACCESS_*, of each peer
    using Options = std::map<std::string, std::optional<std::string>>; // none: it has no value
    // In the order in which a new manager is told: streams before captures.
    struct Notice {
        uint32_t notice; // EMM_STREAM_REGISTERED or EMM_STREAM_CAPTURE_BEGINS
        emm_stream stream;
        auto operator<=>(const Notice &) const = default;
    };

    // These may throw std::bad_alloc, and change nothing then.
    void add(const Notice &notice); // a stream once, a capture as often as it comes
    void set_access(int32_t device, uint32_t flags);

    // Removes one such notice. Returns false if there is none.
    bool remove(const Notice &notice) noexcept;
    void set_options(Options options) noexcept; // all of them

    uint32_t access(int32_t device) const;
    Accesses accesses() const;
    Options options() const;
    std::vector<Notice> notices() const;

private:
    mutable std::mutex mutex_;
    std::multiset<Notice> notices_;
    Accesses accesses_;
    Options options_;
};

} // namespace emm::core

// What lay in device memory while a pool is paused, in host memory: pinned as far as the bound and
// the host allow, else ordinary. No lock is held; the calls come one at a time.
#pragma once

#include "backing/host_node.h"
#include "backing/pinned_bound.h"
#include "cuda/served_context.h"
#include "order/copies.h"
#include "policy/copies.h"

#include <atomic>
#include <functional>

namespace emm::pool {

class HostCopy {
public:
    HostCopy(const ServedContext &context, PinnedBound &bound, const HostNode &node)
        : context_(context), bound_(bound), node_(node), copies_(context) {}
    ~HostCopy() { release(); }
    HostCopy(const HostCopy &) = delete;
    HostCopy &operator=(const HostCopy &) = delete;

    // From the device, whose context is current, in parts. After each of them, while the copies of
    // the next are under way, `saved` is told below which address all is there: UINT64_MAX after
    // the last. It answers whether to go on: CUDA_ERROR_NOT_PERMITTED if it does not at the last.
    // Before the first answer nothing has changed. Throws std::bad_alloc, before `saved` is called.
    CUresult save(const std::vector<Range> &ranges, const std::function<bool(uint64_t)> &saved);
    // Begins to copy a range back, as far as it was saved: it has memory again.
    void load(Range range);
    CUresult wait() { return copies_.wait(); } // for what has begun
    // Of what was saved. False: not all of the range was, and nothing is copied.
    bool read(Range range, char *to) const;
    // Waits for copies whose end was not seen. False: they may go on, and use both sides.
    bool settle() { return !copies_.go_on() || (copies_.wait(), !copies_.go_on()); }

    void forget() { saved_.clear(); } // the content, and keeps the memory for the next one
    // Both, but for the oldest chunks.
    void release(size_t kept_chunks = 0) noexcept;
    size_t chunks() const { return chunks_.size(); }
    uint64_t pinned() const { return pinned_.load(std::memory_order_relaxed); } // any thread

private:
    struct Chunk {
        char *memory;
        uint64_t bytes;
        bool pinned;
    };
    struct Saved {
        Range range;
        char *host;
    };
    void grow(uint64_t bytes);
    std::vector<uint64_t> begin_to_save(const std::vector<Range> &ranges, uint64_t part_bytes);
    bool add(uint64_t bytes, bool pinned);
    bool give_back(const Chunk &chunk) noexcept;

    const ServedContext &context_;
    PinnedBound &bound_;
    const HostNode &node_;
    Copies copies_;
    std::vector<Chunk> chunks_;
    std::vector<Saved> saved_; // in the order of addresses
    std::atomic<uint64_t> pinned_{0};
};

} // namespace emm::pool

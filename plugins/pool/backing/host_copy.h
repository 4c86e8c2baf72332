// The content of a paused pool, in host memory: pinned as far as the bound and the host allow, else
// ordinary. No lock is held; the calls come one at a time.
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

    // Copies from the device in parts; its context is current. After each part, while the next is
    // being copied, `on_saved` gets the address below which everything is saved: UINT64_MAX after
    // the last part. `on_saved` returns whether to go on; if it stops at the last part, the result
    // is CUDA_ERROR_NOT_PERMITTED. Before its first return nothing has changed. Throws
    // std::bad_alloc, before `on_saved` is called. After a failure, the copy has what lies below
    // the last of these addresses.
    CUresult save(const std::vector<Range> &ranges, const std::function<bool(uint64_t)> &on_saved);
    // Begins to copy a range back, as far as it was saved; the range has memory again.
    void load(Range range);
    CUresult wait() { return copies_.wait(); } // for the copies begun
    // Reads saved content. False: the range was not saved completely, and nothing is copied.
    bool read(Range range, char *to) const;
    // Waits for copies whose end has not been seen. False: they may go on, and use both sides.
    bool wait_until_unused() {
        return !copies_.may_be_running() || (copies_.wait(), !copies_.may_be_running());
    }

    void forget() { saved_.clear(); } // forgets the content, and keeps the memory for the next copy
    // Forgets the content and frees the memory, except the oldest chunks.
    void release(size_t kept_chunks = 0) noexcept;
    size_t chunks() const { return chunks_.size(); }
    uint64_t pinned() const { return pinned_.load(std::memory_order_relaxed); } // for any thread

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
    void drop_from(uint64_t address) noexcept; // forgets what was not saved
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

// What lay in device memory while a pool is paused, in host memory: pinned as far as the bound and
// the host allow, else ordinary. No lock is held; the calls come one at a time.
#pragma once

#include "backing/pinned_bound.h"
#include "cuda/served_context.h"
#include "order/copies.h"
#include "policy/copies.h"

#include <atomic>

namespace emm::pool {

class HostCopy {
public:
    HostCopy(const ServedContext &context, PinnedBound &bound)
        : context_(context), bound_(bound), copies_(context) {}
    ~HostCopy() { release(); }
    HostCopy(const HostCopy &) = delete;
    HostCopy &operator=(const HostCopy &) = delete;

    // From the device, whose context is current. Throws std::bad_alloc.
    CUresult save(const std::vector<Range> &ranges);
    // Back, as far as they were saved: these have memory again.
    CUresult load(const std::vector<Range> &ranges);
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
    bool add(uint64_t bytes, bool pinned);
    bool give_back(const Chunk &chunk) noexcept;

    const ServedContext &context_;
    PinnedBound &bound_;
    Copies copies_;
    std::vector<Chunk> chunks_;
    std::vector<Saved> saved_; // in the order of addresses
    std::atomic<uint64_t> pinned_{0};
};

} // namespace emm::pool

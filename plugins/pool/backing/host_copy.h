// What lay in device memory while a pool is paused, in host memory: pinned as far as `host_max` and
// the host allow, else ordinary. No lock is held; the calls come one at a time.
#pragma once

#include "cuda/served_context.h"
#include "order/copies.h"
#include "policy/copies.h"

#include <atomic>

namespace emm::pool {

class HostCopy {
public:
    explicit HostCopy(const ServedContext &context) : context_(context), copies_(context) {}
    ~HostCopy() { release(); }
    HostCopy(const HostCopy &) = delete;
    HostCopy &operator=(const HostCopy &) = delete;

    // From the device, whose context is current. CUDA_ERROR_OUT_OF_MEMORY: there is no host memory.
    // `most_pinned`: how much of it may be pinned. Throws std::bad_alloc.
    CUresult save(const std::vector<Range> &ranges, uint64_t most_pinned);
    // Back, as far as they were saved: these have memory again.
    CUresult load(const std::vector<Range> &ranges);
    // Waits for copies whose end was not seen. False: they may go on, and use both sides.
    bool settle() { return !copies_.go_on() || (copies_.wait(), !copies_.go_on()); }

    void forget() { saved_.clear(); } // the content, and keeps the memory for the next one
    void release() noexcept;          // both
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
    CUresult grow(uint64_t bytes, uint64_t most_pinned);
    bool add(uint64_t bytes, bool pinned);
    bool give_back(const Chunk &chunk) noexcept;

    const ServedContext &context_;
    Copies copies_;
    std::vector<Chunk> chunks_;
    std::vector<Saved> saved_; // in the order of addresses
    std::atomic<uint64_t> pinned_{0};
};

} // namespace emm::pool

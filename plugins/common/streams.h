#pragma once

#include "common/driver.h"

#include <atomic>
#include <mutex>

namespace emm::common {

// Makes a stream wait for all work of a context. The event for that would invalidate captures: one
// that is announced is known, and none is announced meanwhile; one that is not announced makes the
// driver refuse. Before CUDA 12.5 the calling thread waits, and with it an announcement.
class ContextWait {
public:
    ContextWait(const StreamDriver &driver, CUcontext context)
        : driver_(driver), context_(context) {}

    // What comes on `waiting` next runs after all work that the context holds now.
    // CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED, and nothing is done, while a capture is announced.
    CUresult unless_capturing(CUstream waiting);

    void capture_begins();
    void capture_ends();
    bool is_capturing() const { return captures_ != 0; }

private:
    CUresult for_everything(CUstream waiting) const;

    const StreamDriver &driver_;
    const CUcontext context_;
    std::mutex announcing_;             // a capture, or a context event while there is none
    std::atomic<uint32_t> captures_{0}; // announced and not ended
};

// A stream of the plugin's own, which no work of the legacy stream waits for.
class PrivateStream {
public:
    PrivateStream(const StreamDriver &driver, CUcontext context, uint64_t context_id);
    // A stream dies with its context.
    ~PrivateStream();
    PrivateStream(const PrivateStream &) = delete;
    PrivateStream &operator=(const PrivateStream &) = delete;

    operator CUstream() const { return stream_; }

private:
    const StreamDriver &driver_;
    const CUcontext context_;
    const uint64_t context_id_;
    CUstream stream_ = nullptr;
};

} // namespace emm::common

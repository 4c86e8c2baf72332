#pragma once

#include "common/driver.h"

#include <atomic>
#include <mutex>

namespace emm::common {

// Makes a stream wait for all work of a context. The event for that would invalidate captures.
// While one is announced, no event is recorded, and none can be announced meanwhile. If an
// unannounced one exists, the driver refuses. Before CUDA 12.5 the calling thread waits, and
// announcements wait with it.
class ContextWait {
public:
    ContextWait(const StreamDriver &driver, CUcontext context)
        : driver_(driver), context_(context) {}

    // Orders later work on `waiting` behind all work that the context holds now. While a capture is
    // announced, does nothing and returns CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED.
    CUresult unless_capturing(CUstream waiting);

    void notice(uint32_t notice); // of EMM_STREAM_..., about any stream
    bool is_capturing() const { return captures_ != 0; }

private:
    CUresult for_everything(CUstream waiting) const;

    const StreamDriver &driver_;
    const CUcontext context_;
    std::mutex announcing_;             // held to announce a capture, or to record a context event
    std::atomic<uint32_t> captures_{0}; // announced and not ended
};

// A stream of the plugin's own, independent of the legacy stream.
class PrivateStream {
public:
    PrivateStream(const StreamDriver &driver, CUcontext context, uint64_t context_id);
    // The stream of a dead context is gone already.
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

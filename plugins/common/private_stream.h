#pragma once

#include "common/driver.h"

namespace emm::common {

// A stream of the plugin's own, which no work of the legacy stream waits for.
class PrivateStream {
public:
    PrivateStream(const Driver &driver, CUcontext context, uint64_t context_id);
    // A stream dies with its context.
    ~PrivateStream();
    PrivateStream(const PrivateStream &) = delete;
    PrivateStream &operator=(const PrivateStream &) = delete;

    operator CUstream() const { return stream_; }

private:
    const Driver &driver_;
    const CUcontext context_;
    const uint64_t context_id_;
    CUstream stream_ = nullptr;
};

} // namespace emm::common

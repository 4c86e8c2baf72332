#pragma once

#include "driver.h"
#include "replay/toucher.h"
#include "trace/trace.h"

#include <emm/emm.h>

#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <vector>

namespace emm::tool {

// Driver functions, and how often each was called.
using CallCounts = std::map<std::string, uint64_t>;
CallCounts count_driver_calls(); // by emm and its plugin so far
uint64_t total(const CallCounts &counts);

// The device side of one replay: a context, a registered non-blocking stream for each of the
// trace's streams, and its blocks.
class Session {
public:
    explicit Session(const Trace &trace);

    // Makes the CUDA context current on the calling thread, for the tool's own driver calls.
    void enter() const;

    // Waits for everything on every stream.
    void synchronize() const;

    // Gives the streams back and retires the context. Throws Failure if that fails.
    void close();

    // The plugin's figures; only 0 if it has none. Its driver calls for them do not count below.
    emm_stats stats();
    // The calls that the replay itself has caused.
    CallCounts driver_calls() const;

    emm_context *context() const { return context_; }
    CUstream stream(uint16_t number) const { return streams_[number]; } // for work
    // For allocations and frees, which the recorded program may not have ordered by a stream.
    emm_stream order(uint16_t number) const {
        return number == unordered_ ? EMM_STREAM_UNORDERED : streams_[number];
    }
    Block &block(uint32_t number) const { return blocks_[number]; }

private:
    emm_context *context_ = nullptr;
    CUcontext cuda_context_ = nullptr;
    std::vector<CUstream> streams_;
    const uint32_t unordered_; // the number of EMM_STREAM_UNORDERED
    std::unique_ptr<Block[]> blocks_;
    CallCounts calls_for_stats_;
};

} // namespace emm::tool

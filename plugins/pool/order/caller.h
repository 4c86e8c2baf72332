// Which stream a call means: what is found out before the pool's lock is taken.
#pragma once

#include <cstdint>
#include <cuda.h>

namespace emm::pool {

enum class StreamKind : uint8_t {
    none,        // EMM_STREAM_UNORDERED
    legacy,      // always lives
    registered,  // lives until announced otherwise
    unregistered // known to live during this call only
};

constexpr uint64_t first_thread_key = uint64_t(1) << 63; // one for each thread's own stream

struct Caller {
    StreamKind kind = StreamKind::none;
    CUstream stream = nullptr;
    uint64_t key = 0;
    bool capturing = false;
    uint64_t capture_id = 0;
    CUgraph graph = nullptr;

    bool is_own_stream() const { return !capturing && key >= first_thread_key; }
};

} // namespace emm::pool

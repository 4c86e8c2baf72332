// The stream that a call means, found out before the pool's lock is taken.
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

const CUstream per_thread_handle = reinterpret_cast<CUstream>(uintptr_t(2));
constexpr uint64_t first_thread_key = uint64_t(1) << 63; // of threads' own streams in captures

struct Caller {
    StreamKind kind = StreamKind::none;
    CUstream stream = nullptr;
    uint64_t key = 0;
    bool capturing = false;
    bool invalidated = false; // its capture, which becomes no graph
    uint64_t capture_id = 0;
    CUgraph graph = nullptr;

    bool is_own_stream() const { return !capturing && stream == per_thread_handle; }
};

} // namespace emm::pool

#pragma once

#include "common/driver.h"

#include <atomic>
#include <cuda/memory_resource>
#include <cuda/stream_ref>

namespace emm::over_rmm {

using AnyResource = ::cuda::mr::any_resource<::cuda::mr::device_accessible>;
constexpr size_t alignment = 256; // of every allocation of RMM

struct Options {
    enum class Kind { pool, arena, binning, async };
    Kind kind = Kind::pool;
    uint64_t initial_bytes = 0;
    uint64_t max_bytes = 0; // 0: no limit
};

// Memory taken from the driver, for as long as RMM's resources live.
struct Taken {
    const common::Driver &driver;
    std::atomic<uint64_t> bytes{0}, peak_bytes{0};
};

// cuMemAlloc of emm's driver, as the resource below those of RMM.
class DriverMemory {
public:
    explicit DriverMemory(Taken &taken) : taken_(&taken) {}
    void *allocate(::cuda::stream_ref stream, size_t bytes, size_t align = alignment);
    void deallocate(::cuda::stream_ref stream, void *ptr, size_t bytes,
                    size_t align = alignment) noexcept;
    void *allocate_sync(size_t bytes, size_t align = alignment);
    void deallocate_sync(void *ptr, size_t bytes, size_t align = alignment) noexcept;
    bool operator==(const DriverMemory &other) const { return taken_ == other.taken_; }
    bool operator!=(const DriverMemory &other) const { return taken_ != other.taken_; }
    friend void get_property(const DriverMemory &, ::cuda::mr::device_accessible) noexcept {}

private:
    Taken *taken_;
};

// A resource of RMM. For the kind async: also the driver's pool that it takes memory from.
struct Resource {
    AnyResource memory;
    CUmemoryPool pool = nullptr;
};

// RMM's resources for the options: async, or another one over the driver's memory. Passes RMM's
// exceptions on.
Resource make_resource(const Options &options, Taken &taken);

} // namespace emm::over_rmm

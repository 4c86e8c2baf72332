#include "rmm/resources.h"

#include <rmm/error.hpp>
#include <rmm/mr/arena_memory_resource.hpp>
#include <rmm/mr/binning_memory_resource.hpp>
#include <rmm/mr/cuda_async_memory_resource.hpp>
#include <rmm/mr/pool_memory_resource.hpp>

#include <optional>

namespace emm::over_rmm {
namespace {

// Blocks of 256 KiB, 512 KiB, 1 MiB, 2 MiB and 4 MiB, as powers of two.
constexpr int8_t smallest_bin = 18, largest_bin = 22;

std::optional<size_t> limit(const Options &options) {
    return options.max_bytes == 0 ? std::nullopt : std::optional<size_t>(options.max_bytes);
}

AnyResource make_pool(const Options &options, Taken &taken) {
    return ::rmm::mr::pool_memory_resource(DriverMemory(taken), options.initial_bytes,
                                           limit(options));
}

Resource make_async() {
    const ::rmm::mr::cuda_async_memory_resource made;
    return {made, made.pool_handle()};
}

} // namespace

void *DriverMemory::allocate_sync(size_t bytes, size_t) {
    CUdeviceptr ptr = 0;
    const CUresult result = taken_->driver.cuMemAlloc(&ptr, bytes);
    if (result == CUDA_ERROR_OUT_OF_MEMORY) {
        throw ::rmm::out_of_memory("the driver ran out of memory");
    }
    taken_->driver.check(result, "cuMemAlloc");
    const uint64_t now = taken_->bytes += bytes;
    uint64_t peak = taken_->peak_bytes;
    while (peak < now && !taken_->peak_bytes.compare_exchange_weak(peak, now)) {
    }
    return reinterpret_cast<void *>(ptr);
}

// If the context has died, its memory is gone.
void DriverMemory::deallocate_sync(void *ptr, size_t bytes, size_t) noexcept {
    const auto address = reinterpret_cast<CUdeviceptr>(ptr);
    if (taken_->driver.cuMemFree(address) != CUDA_SUCCESS) {
        taken_->driver.cuMemFree(address);
    }
    taken_->bytes -= bytes;
}

void *DriverMemory::allocate(::cuda::stream_ref, size_t bytes, size_t align) {
    return allocate_sync(bytes, align);
}

void DriverMemory::deallocate(::cuda::stream_ref, void *ptr, size_t bytes, size_t align) noexcept {
    deallocate_sync(ptr, bytes, align);
}

Resource make_resource(const Options &options, Taken &taken) {
    switch (options.kind) {
    case Options::Kind::arena:
        return {::rmm::mr::arena_memory_resource(DriverMemory(taken), limit(options))};
    case Options::Kind::binning:
        return {::rmm::mr::binning_memory_resource(make_pool(options, taken), smallest_bin,
                                                   largest_bin)};
    case Options::Kind::async:
        return make_async();
    default:
        return {make_pool(options, taken)};
    }
}

} // namespace emm::over_rmm

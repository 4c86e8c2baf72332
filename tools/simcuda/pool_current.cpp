#include "call.h"
#include "pool.h"
#include "simulator.h"

namespace simcuda {
namespace {

// CUDA 13 also has pools of host and managed memory; here a location is a device.
CUresult find_location(const CUmemLocation *location, CUmemAllocationType type) {
    if (!location) {
        return CUDA_ERROR_INVALID_VALUE;
    }
    return type == CU_MEM_ALLOCATION_TYPE_PINNED && location->type == CU_MEM_LOCATION_TYPE_DEVICE
               ? CUDA_SUCCESS
               : CUDA_ERROR_NOT_SUPPORTED;
}

} // namespace

CUresult api::device_get_default_mem_pool(CUmemoryPool *pool_out, CUdevice dev) {
    return tell(pool_out, expect_found(find_device, dev).default_pool->handle);
}

CUresult api::device_get_mem_pool(CUmemoryPool *pool, CUdevice dev) {
    return tell(pool, expect_found(find_device, dev).current_pool->handle);
}

CUresult api::device_set_mem_pool(CUdevice dev, CUmemoryPool pool) {
    Device &device = expect_found(find_device, dev);
    Pool &found = expect_found(find_pool, pool);
    expect(found.device == &device);
    device.current_pool = &found;
    return CUDA_SUCCESS;
}

CUresult api::mem_get_default_mem_pool(CUmemoryPool *pool_out, CUmemLocation *location,
                                       CUmemAllocationType type) {
    expect_success(find_location(location, type));
    return device_get_default_mem_pool(pool_out, location->id);
}

CUresult api::mem_get_mem_pool(CUmemoryPool *pool, CUmemLocation *location,
                               CUmemAllocationType type) {
    expect_success(find_location(location, type));
    return device_get_mem_pool(pool, location->id);
}

CUresult api::mem_set_mem_pool(CUmemLocation *location, CUmemAllocationType type,
                               CUmemoryPool pool) {
    expect_success(find_location(location, type));
    return device_set_mem_pool(location->id, pool);
}

} // namespace simcuda

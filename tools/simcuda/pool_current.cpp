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
    Device *device;
    const CUresult result = find_device(dev, device);
    if (result == CUDA_SUCCESS && pool_out) {
        *pool_out = device->default_pool->handle;
    }
    return result == CUDA_SUCCESS && !pool_out ? CUDA_ERROR_INVALID_VALUE : result;
}

CUresult api::device_get_mem_pool(CUmemoryPool *pool, CUdevice dev) {
    Device *device;
    const CUresult result = find_device(dev, device);
    if (result == CUDA_SUCCESS && pool) {
        *pool = device->current_pool->handle;
    }
    return result == CUDA_SUCCESS && !pool ? CUDA_ERROR_INVALID_VALUE : result;
}

CUresult api::device_set_mem_pool(CUdevice dev, CUmemoryPool pool) {
    Device *device;
    Pool *found;
    CUresult result = find_device(dev, device);
    result = result == CUDA_SUCCESS ? find_pool(pool, found) : result;
    if (result == CUDA_SUCCESS && found->device != device) {
        return CUDA_ERROR_INVALID_VALUE;
    }
    if (result == CUDA_SUCCESS) {
        device->current_pool = found;
    }
    return result;
}

CUresult api::mem_get_default_mem_pool(CUmemoryPool *pool_out, CUmemLocation *location,
                                       CUmemAllocationType type) {
    const CUresult result = find_location(location, type);
    return result == CUDA_SUCCESS ? device_get_default_mem_pool(pool_out, location->id) : result;
}

CUresult api::mem_get_mem_pool(CUmemoryPool *pool, CUmemLocation *location,
                               CUmemAllocationType type) {
    const CUresult result = find_location(location, type);
    return result == CUDA_SUCCESS ? device_get_mem_pool(pool, location->id) : result;
}

CUresult api::mem_set_mem_pool(CUmemLocation *location, CUmemAllocationType type,
                               CUmemoryPool pool) {
    const CUresult result = find_location(location, type);
    return result == CUDA_SUCCESS ? device_set_mem_pool(location->id, pool) : result;
}

} // namespace simcuda

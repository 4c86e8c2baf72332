#include "objects.h"

#include <cstring>
#include <vector>

Primary::Primary(CUdevice device) : device_(device) {
    NEED(cu.cuInit(0));
    NEED(cu.cuDevicePrimaryCtxRetain(&context, device));
    NEED(cu.cuCtxSetCurrent(context));
}

Primary::~Primary() {
    cu.cuCtxSetCurrent(context);
    cu.cuCtxSynchronize();
    cu.cuCtxSetCurrent(nullptr);
    cu.cuDevicePrimaryCtxRelease(device_);
}

void order(CUstream before, CUstream after) {
    const Event event;
    NEED(cu.cuEventRecord(event, before));
    NEED(cu.cuStreamWaitEvent(after, event, 0));
}

CUstreamCaptureStatus status_of(CUstream stream) {
    CUstreamCaptureStatus status = CU_STREAM_CAPTURE_STATUS_NONE;
    NEED(cu.cuStreamIsCapturing(stream, &status));
    return status;
}

CUdeviceptr allocate(size_t size) {
    CUdeviceptr address = 0;
    NEED(cu.cuMemAlloc(&address, size));
    return address;
}

CUmemoryPool make_pool(CUdevice device) {
    CUmemoryPool pool = nullptr;
    CUmemPoolProps properties = {};
    properties.allocType = CU_MEM_ALLOCATION_TYPE_PINNED;
    properties.location.type = CU_MEM_LOCATION_TYPE_DEVICE;
    properties.location.id = device;
    NEED(cu.cuMemPoolCreate(&pool, &properties));
    return pool;
}

CUmemoryPool make_keeping_pool(CUdevice device) {
    uint64_t all = ~uint64_t(0);
    const CUmemoryPool pool = make_pool(device);
    NEED(cu.cuMemPoolSetAttribute(pool, CU_MEMPOOL_ATTR_RELEASE_THRESHOLD, &all));
    return pool;
}

uint64_t figure(CUmemoryPool pool, CUmemPool_attribute attribute) {
    uint64_t bytes = 0;
    NEED(cu.cuMemPoolGetAttribute(pool, attribute, &bytes));
    return bytes;
}

CUmemoryPool pool_of(CUdeviceptr address) {
    CUmemoryPool pool = nullptr;
    NEED(cu.cuPointerGetAttribute(&pool, CU_POINTER_ATTRIBUTE_MEMPOOL_HANDLE, address));
    return pool;
}

CUdeviceptr allocate_async(size_t size, CUstream stream) {
    CUdeviceptr address = 0;
    NEED(cu.cuMemAllocAsync(&address, size, stream));
    return address;
}

CUresult fill(CUdeviceptr address, size_t size, unsigned value, CUstream stream) {
    return size % 4 == 0
               ? cu.cuMemsetD32Async(address, value, size / 4, stream)
               : cu.cuMemsetD8Async(address, static_cast<unsigned char>(value), size, stream);
}

bool holds(CUdeviceptr address, size_t size, unsigned value, CUstream stream) {
    std::vector<unsigned char> bytes(size);
    if (cu.cuMemcpyDtoHAsync(bytes.data(), address, size, stream) != CUDA_SUCCESS ||
        cu.cuStreamSynchronize(stream) != CUDA_SUCCESS) {
        return false;
    }
    unsigned char pattern[4];
    std::memcpy(pattern, &value, sizeof pattern);
    const size_t period = size % 4 == 0 ? 4 : 1;
    return std::memcmp(bytes.data(), pattern, period) == 0 &&
           std::memcmp(bytes.data() + period, bytes.data(), size - period) == 0;
}

bool is_known(CUdeviceptr address) {
    unsigned type = 0;
    return cu.cuPointerGetAttribute(&type, CU_POINTER_ATTRIBUTE_MEMORY_TYPE, address) ==
           CUDA_SUCCESS;
}

uint64_t free_memory() {
    size_t free = 0, total = 0;
    NEED(cu.cuMemGetInfo(&free, &total));
    return free;
}

// Helpers of several cases: contexts, streams, and bytes that are written and looked at.
#pragma once

#include "facts.h"

#include <cstdint>

constexpr size_t page = 4096;
constexpr size_t mib = size_t(1) << 20;

// The primary context of a device, retained and current as long as this lives.
struct Primary {
    explicit Primary(CUdevice device = 0);
    ~Primary();
    Primary(const Primary &) = delete;
    Primary &operator=(const Primary &) = delete;
    CUcontext context = nullptr;

private:
    CUdevice device_;
};

// A further context of the device, current as long as this lives.
struct Second {
    explicit Second(CUdevice device) { NEED(cu.cuCtxCreate_v2(&context, 0, device)); }
    ~Second() { cu.cuCtxDestroy(context); }
    Second(const Second &) = delete;
    Second &operator=(const Second &) = delete;
    CUcontext context = nullptr;
};

struct Stream {
    explicit Stream(unsigned flags = CU_STREAM_NON_BLOCKING) {
        NEED(cu.cuStreamCreate(&handle, flags));
    }
    ~Stream() { cu.cuStreamDestroy(handle); }
    Stream(const Stream &) = delete;
    Stream &operator=(const Stream &) = delete;
    operator CUstream() const { return handle; }
    CUstream handle = nullptr;
};

struct Event {
    Event() { NEED(cu.cuEventCreate(&handle, CU_EVENT_DISABLE_TIMING)); }
    ~Event() { cu.cuEventDestroy(handle); }
    Event(const Event &) = delete;
    Event &operator=(const Event &) = delete;
    operator CUevent() const { return handle; }
    CUevent handle = nullptr;
};

// Later work of `after` follows the present work of `before`.
void order(CUstream before, CUstream after);

CUstreamCaptureStatus status_of(CUstream stream);

CUdeviceptr allocate(size_t size);
CUdeviceptr allocate_async(size_t size, CUstream stream);

// A memory pool of the program's own; the bytes that a pool tells of; whose pool memory is.
CUmemoryPool make_pool(CUdevice device = 0);
CUmemoryPool make_keeping_pool(CUdevice device = 0); // its threshold is the highest
uint64_t figure(CUmemoryPool pool, CUmemPool_attribute attribute);
CUmemoryPool pool_of(CUdeviceptr address);
inline uint64_t used(CUmemoryPool pool) {
    return figure(pool, CU_MEMPOOL_ATTR_USED_MEM_CURRENT);
}
inline uint64_t reserved(CUmemoryPool pool) {
    return figure(pool, CU_MEMPOOL_ATTR_RESERVED_MEM_CURRENT);
}

// Writes the value into each word, or into each byte where the size is no multiple of 4.
CUresult fill(CUdeviceptr address, size_t size, unsigned value, CUstream stream);

// Waits for the stream and reads all of it back.
bool holds(CUdeviceptr address, size_t size, unsigned value, CUstream stream);

// A kernel of the context writes 1 MiB. The simulated driver has no kernels: it checks whether a
// kernel would have access, and a set writes.
CUresult write_by_kernel(CUdeviceptr address, unsigned value, CUcontext context, CUstream stream);

// Whether the driver knows the address.
bool is_known(CUdeviceptr address);

uint64_t free_memory();

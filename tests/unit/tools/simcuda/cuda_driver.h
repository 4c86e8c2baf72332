// Fixtures on the driver to test.
#pragma once

#include "catch.h"
#include "driver_table.h"

// The initialised driver, on device 0. Fails the test case, or skips it if there is no real device.
struct Device {
    Device();
    ~Device();
    CUcontext context = nullptr;
};

struct Stream {
    explicit Stream(unsigned flags = CU_STREAM_NON_BLOCKING) {
        REQUIRE(cu().cuStreamCreate(&handle, flags) == CUDA_SUCCESS);
    }
    ~Stream() { cu().cuStreamDestroy(handle); }
    Stream(const Stream &) = delete;
    Stream &operator=(const Stream &) = delete;
    operator CUstream() const { return handle; }
    CUstream handle = nullptr;
};

struct Event {
    Event() { REQUIRE(cu().cuEventCreate(&handle, CU_EVENT_DISABLE_TIMING) == CUDA_SUCCESS); }
    ~Event() { cu().cuEventDestroy(handle); }
    Event(const Event &) = delete;
    Event &operator=(const Event &) = delete;
    operator CUevent() const { return handle; }
    CUevent handle = nullptr;
};

struct Block {
    explicit Block(size_t size) { REQUIRE(cu().cuMemAlloc(&address, size) == CUDA_SUCCESS); }
    ~Block() { cu().cuMemFree(address); }
    Block(const Block &) = delete;
    Block &operator=(const Block &) = delete;
    operator CUdeviceptr() const { return address; }
    CUdeviceptr address = 0;
};

unsigned char byte_at(CUdeviceptr address);
simcuda_counters counters(); // of the simulated driver
uint64_t context_id(CUcontext context);

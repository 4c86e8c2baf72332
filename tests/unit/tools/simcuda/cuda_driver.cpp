#include "cuda_driver.h"

#include "parts/sized.h"

Device::Device() {
    REQUIRE(cu().cuInit(0) == CUDA_SUCCESS);
    REQUIRE(cu().cuDevicePrimaryCtxRetain(&context, 0) == CUDA_SUCCESS);
    REQUIRE(cu().cuCtxPushCurrent(context) == CUDA_SUCCESS);
}

Device::~Device() {
    CUcontext popped;
    cu().cuCtxSynchronize();
    cu().cuCtxPopCurrent(&popped);
    cu().cuDevicePrimaryCtxRelease(0);
}

unsigned char byte_at(CUdeviceptr address) {
    unsigned char byte = 0;
    REQUIRE(cu().cuMemcpyDtoH(&byte, address, 1) == CUDA_SUCCESS);
    return byte;
}

simcuda_counters counters() {
    auto found = sized<simcuda_counters>();
    cu().get_counters(&found);
    return found;
}

uint64_t context_id(CUcontext context) {
    unsigned long long id = 0;
    REQUIRE(cu().cuCtxGetId(context, &id) == CUDA_SUCCESS);
    return id;
}

#include "driver/driver.h"

namespace emm::driver {

CUresult look_up(const Driver &driver, emm_deviceptr address, Pointer &ret_pointer) noexcept {
    const auto ask = [&](CUpointer_attribute attribute, void *answer) {
        return driver.cuPointerGetAttribute(answer, attribute, address);
    };
    Pointer pointer;
    const CUresult result = ask(CU_POINTER_ATTRIBUTE_DEVICE_POINTER, &pointer.device);
    if (result != CUDA_SUCCESS) {
        return result;
    }
    unsigned type = 0, managed = 0;
    pointer.managed =
        ask(CU_POINTER_ATTRIBUTE_IS_MANAGED, &managed) == CUDA_SUCCESS && managed != 0;
    pointer.on_host = ask(CU_POINTER_ATTRIBUTE_MEMORY_TYPE, &type) == CUDA_SUCCESS &&
                      type == CU_MEMORYTYPE_HOST && !pointer.managed;
    if (ask(CU_POINTER_ATTRIBUTE_HOST_POINTER, &pointer.host) != CUDA_SUCCESS) {
        pointer.host = nullptr;
    }
    ret_pointer = pointer;
    return CUDA_SUCCESS;
}

} // namespace emm::driver

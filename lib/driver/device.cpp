#include "driver/driver.h"

#include "observe/error.h"

#include <cstring>

namespace emm::driver {

emm_status find_device(const Driver &driver, int32_t ordinal, CUdevice *ret_device) {
    int count = 0;
    CUresult result = driver.cuDeviceGetCount(&count);
    if (result == CUDA_SUCCESS && (ordinal < 0 || ordinal >= count)) {
        return observe::refuse("device: expected 0 to {}, found {}", count - 1, ordinal);
    }
    if (result == CUDA_SUCCESS) {
        result = driver.cuDeviceGet(ret_device, ordinal);
    }
    return check(result, "cuDeviceGet");
}

emm_status identify_device(const Driver &driver, CUdevice device, DeviceIdentity *ret_identity) {
    CUuuid uuid = {};
    CUresult result = driver.cuDeviceGetUuid(&uuid, device);
    if (result != CUDA_SUCCESS) {
        return fail(result, "cuDeviceGetUuid");
    }
    DeviceIdentity found;
    std::memcpy(found.uuid, uuid.bytes, sizeof found.uuid);
    const CUdevice_attribute attributes[] = {CU_DEVICE_ATTRIBUTE_PCI_DOMAIN_ID,
                                             CU_DEVICE_ATTRIBUTE_PCI_BUS_ID,
                                             CU_DEVICE_ATTRIBUTE_PCI_DEVICE_ID};
    for (int i = 0; i < 3; ++i) {
        int value = 0;
        result = driver.cuDeviceGetAttribute(&value, attributes[i], device);
        if (result != CUDA_SUCCESS) {
            return fail(result, "cuDeviceGetAttribute");
        }
        found.pci[i] = static_cast<uint32_t>(value);
    }
    *ret_identity = found;
    return EMM_OK;
}

} // namespace emm::driver

#pragma once

#include "driver/driver.h"

namespace emm::driver {

// How a device is known to every process.
struct DeviceIdentity {
    uint8_t uuid[16] = {};
    uint32_t pci[3] = {}; // domain, bus, device
};

// A failure is described.
emm_status identify_device(const Driver &driver, CUdevice device, DeviceIdentity *ret_identity);

} // namespace emm::driver

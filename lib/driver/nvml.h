#pragma once

#include "observe/memory_report.h"

#include <cstdint>
#include <string>
#include <vector>

namespace emm::driver {

// What each process has of the device with that UUID (16 bytes), as NVML tells: opened when first
// asked, and never linked. False: `ret_reason` says why it is not told. A name is that of the
// program, as far as this user may see it.
bool device_processes(const uint8_t *uuid, std::vector<observe::DeviceProcess> &ret_processes,
                      std::string &ret_reason);

} // namespace emm::driver

#pragma once

#include "observe/memory_report.h"

#include <cstdint>
#include <string>
#include <vector>

namespace emm::driver {

// The memory of each process on the device with that UUID (16 bytes), as NVML reports it. NVML is
// opened when first asked, and never linked. A process's name is its program's, as far as this user
// may see it. False: `ret_reason` says why NVML does not tell.
bool device_processes(const uint8_t *uuid, std::vector<observe::DeviceProcess> &ret_processes,
                      std::string &ret_reason);

} // namespace emm::driver

#pragma once

#include "driver/driver.h"

namespace emm::driver {

// What CUDA says of an address. The context is current.
struct Pointer {
    emm_deviceptr device = 0; // as this context uses it
    void *host = nullptr;     // NULL: the host cannot use it
    bool on_host = false;     // pinned host memory
    bool managed = false;
};

// CUDA_ERROR_INVALID_VALUE if CUDA knows nothing of it.
CUresult look_up(const Driver &driver, emm_deviceptr address, Pointer &ret_pointer) noexcept;

} // namespace emm::driver

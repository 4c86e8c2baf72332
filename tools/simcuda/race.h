#pragma once

#include "shadow.h"

namespace simcuda {

// A use that is not ordered after an earlier one.
void report_race(const Access &earlier, const Access &later, CUdeviceptr address, uint64_t size);

// Memory that is taken away while, for all that the host knows, work still uses it.
void report_unseen(const Access &user, CUdeviceptr address, uint64_t size);

} // namespace simcuda

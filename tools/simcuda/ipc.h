#pragma once

#include <cuda.h>

namespace simcuda {

// Forgets memory of another process, however often it was opened.
void close_import(CUdeviceptr start);

} // namespace simcuda

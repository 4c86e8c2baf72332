#pragma once

#include <cuda.h>

namespace simcuda {

struct Context;
struct Region;

// Closes it for the context. False if no context has it open any more: forget it.
bool leave_import(Region &region, Context *context);

// Forgets memory of another process, however often it was opened.
void close_import(CUdeviceptr start);

} // namespace simcuda

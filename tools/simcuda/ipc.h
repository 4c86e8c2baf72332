#pragma once

#include <cuda.h>

namespace simcuda {

struct Context;
struct Region;

// The context has it open no more. False: no context has, and it is to be forgotten.
bool leave_import(Region &region, Context *context);

// Forgets memory of another process, however often it was opened.
void close_import(CUdeviceptr start);

} // namespace simcuda

#pragma once

#include "handles.h"

#include <cuda.h>
#include <map>
#include <string>

namespace simcuda {

struct Context;

// What was loaded: into a context, or as a library, which needs none. It has each function that it
// is asked for.
struct Module {
    Context *context = nullptr; // NULL: a library
    std::map<std::string, CUfunction> functions;
};

struct Function {};

void end_modules(const Context &context);
CUresult enqueue_nothing(CUstream stream); // which takes its place in the stream's order

} // namespace simcuda

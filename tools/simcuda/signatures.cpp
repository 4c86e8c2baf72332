// NVIDIA's header has a type for each entry by name and version, as PFN_cuMemAlloc_v3020. A line of
// entries.def with a wrong name, version or parameter does not compile here.

// The types of the first versions need this macro before cuda.h. In a unity build cuda.h may be
// included already.
#ifndef __cuda_cuda_h__
#define __CUDA_API_VERSION_INTERNAL
#endif
#include "entries.h"

// Older headers lack the types of the newest entries.
#if defined(__CUDA_API_VERSION_INTERNAL) && CUDA_VERSION >= 13000 && __has_include(<cudaTypedefs.h>)
#include <cudaTypedefs.h>
#include <type_traits>

#define ENTRY(name, since, symbol, function, types)                                                \
    static_assert(std::is_same_v<PFN_##name##_v##since, CUresult(CUDAAPI *) types>,                \
                  #symbol " is not " #name " of CUDA version " #since);
#include "entries.def"
#endif

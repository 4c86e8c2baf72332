// NVIDIA's header has a type for each entry by its name and version, as PFN_cuMemAlloc_v3020. A
// line of entries.def with a wrong name, version or parameter does not compile here.
#include "entries.h"

// Older headers lack the types of the newest entries.
#if CUDA_VERSION >= 13000 && __has_include(<cudaTypedefs.h>)
#include <cudaTypedefs.h>
#include <type_traits>

#define ENTRY(name, since, symbol, function, parameters, arguments)                                \
    static_assert(std::is_same_v<PFN_##name##_v##since, CUresult(CUDAAPI *) parameters>,           \
                  #symbol " is not " #name " of CUDA version " #since);
#define FREE_ENTRY ENTRY
#define STREAM_ENTRY(name, since, symbol, variant, function, parameters, arguments)                \
    static_assert(std::is_same_v<PFN_##name##_v##since, CUresult(CUDAAPI *) parameters>,           \
                  #symbol " is not " #name " of CUDA version " #since);
#include "entries.def"
#undef ENTRY
#undef FREE_ENTRY
#undef STREAM_ENTRY
#endif

#pragma once

#include <cuda.h>
#include <string_view>

// Types that older headers lack.
#if CUDA_VERSION < 12030
struct CUgraphEdgeData;
#endif
#if CUDA_VERSION < 12050
struct CUctxCreateParams;
using CUgreenCtx = struct CUgreenCtx_st *;
#endif

namespace simcuda {

// The entries' implementations. They run with the simulator locked.
namespace api {
#define ENTRY(name, since, symbol, function, types) CUresult function types;
#define FREE_ENTRY ENTRY
#define STREAM_ENTRY(name, since, symbol, suffix, function, types) CUresult function types;
#define KERNEL_ENTRY(name, since, function, types) CUresult function types;
#include "entries.def"
#undef ENTRY
#undef FREE_ENTRY
#undef STREAM_ENTRY
#undef KERNEL_ENTRY
} // namespace api

// One number for each line of the table.
enum Row {
#define ENTRY(name, since, symbol, function, types) row_##symbol,
#define FREE_ENTRY ENTRY
#define STREAM_ENTRY(name, since, symbol, suffix, function, types) row_##symbol,
#define KERNEL_ENTRY(name, since, function, types) row_##name,
#include "entries.def"
#undef ENTRY
#undef FREE_ENTRY
#undef STREAM_ENTRY
#undef KERNEL_ENTRY
    row_count
};

const char *name_of(Row row);
bool is_entry(std::string_view name);

} // namespace simcuda

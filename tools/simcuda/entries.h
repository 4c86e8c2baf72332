#pragma once

#include <cuda.h>
#include <string_view>

// cuda.h renames these to later versions; here each name means itself.
#undef cuDeviceGetUuid
#undef cuDevicePrimaryCtxRelease
#undef cuDevicePrimaryCtxReset
#undef cuDevicePrimaryCtxSetFlags
#undef cuEventElapsedTime
#undef cuGetProcAddress
#undef cuGraphExecUpdate
#undef cuIpcOpenMemHandle
#undef cuMemAlloc
#undef cuMemAllocHost
#undef cuMemAllocPitch
#undef cuMemFree
#undef cuMemGetAddressRange
#undef cuMemGetInfo
#undef cuMemHostGetDevicePointer
#undef cuMemHostRegister
#undef cuMemPrefetchAsync
#undef cuStreamBeginCapture
#undef cuStreamGetCaptureInfo
#undef cuStreamUpdateCaptureDependencies

// Types that older headers lack.
#if CUDA_VERSION < 12030
struct CUgraphEdgeData;
#endif
#if CUDA_VERSION < 12050
struct CUctxCreateParams;
using CUgreenCtx = struct CUgreenCtx_st *;
#endif

namespace simcuda {

// One number for each line of the table.
enum Row {
#define ENTRY(name, since, symbol, function, types) row_##symbol,
#include "entries.def"
    row_count
};

// The result type of an implementation: void, because failures are thrown. Entries that programs
// poll, and that mostly answer no, return the CUresult: a throw takes a microsecond.
template <Row> struct Returned { using Type = void; };
template <> struct Returned<row_cuEventQuery> { using Type = CUresult; };
template <> struct Returned<row_cuStreamQuery> { using Type = CUresult; };

// The entries' implementations. They run with the simulator locked, but for those of FREE_ENTRY.
namespace api {
#define FREE_ENTRY(name, since, symbol, function, types) CUresult function types;
#define ENTRY(name, since, symbol, function, types) Returned<row_##symbol>::Type function types;
#include "entries.def"
} // namespace api

const char *name_of(Row row);
bool is_entry(std::string_view name);

} // namespace simcuda

// Calls in which the driver itself hands addresses to the program, of memory that no plugin serves.
// Each call goes to the driver. Addresses within that memory no longer count as freed.
#include "server.h"

namespace emm::run {
namespace {

template <class... More> void handed_out(CUdeviceptr *ret_ptr, More...) {
    if (ret_ptr) {
        server().driver_gave(*ret_ptr);
    }
}

// An entry whose first argument gets the address; `More` are the other arguments.
template <Served entry, class... More> void watch_address(Entries &entries) {
    watch<entry, &handed_out<More...>>(entries);
}

// Types of OpenGL, without its header.
using Buffer = unsigned;

} // namespace

void serve_driver_addresses(Entries &entries) {
    watch_address<served_cuModuleGetGlobal_v2, size_t *, CUmodule, const char *>(entries);
    watch_address<served_cuLibraryGetGlobal, size_t *, CUlibrary, const char *>(entries);
    watch_address<served_cuLibraryGetManaged, size_t *, CUlibrary, const char *>(entries);
    watch_address<served_cuMemPoolImportPointer, CUmemoryPool, CUmemPoolPtrExportData *>(entries);
    watch_address<served_cuExternalMemoryGetMappedBuffer, CUexternalMemory,
                  const CUDA_EXTERNAL_MEMORY_BUFFER_DESC *>(entries);
    watch_address<served_cuGraphicsResourceGetMappedPointer_v2, size_t *, CUgraphicsResource>(
        entries);
    watch_address<served_cuGLMapBufferObject_v2, size_t *, Buffer>(entries);
    watch_address<served_cuGLMapBufferObject_v2_ptds, size_t *, Buffer>(entries);
    watch_address<served_cuGLMapBufferObjectAsync_v2, size_t *, Buffer, CUstream>(entries);
    watch_address<served_cuGLMapBufferObjectAsync_v2_ptsz, size_t *, Buffer, CUstream>(entries);
}

} // namespace emm::run

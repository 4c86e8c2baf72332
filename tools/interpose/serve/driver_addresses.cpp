// Addresses that the driver itself hands to the program, of memory that no plugin serves: each call
// is the driver's. What was freed there before is freed no more.
#include "server.h"

namespace emm::run {
namespace {

// An entry whose first argument gets the address; `More` are the others.
template <Served entry, class... More> CUresult hand_out(CUdeviceptr *ret_ptr, More... more) {
    const Turn turn;
    const CUresult result = ask_driver<&hand_out<entry, More...>>(entry, ret_ptr, more...);
    if (turn.is_programs() && result == CUDA_SUCCESS && ret_ptr) {
        server().driver_gave(*ret_ptr);
    }
    return result;
}

template <Served entry, class... More> void serve(Entries &entries) {
    entries.at[entry] = entry_of<&hand_out<entry, More...>>();
}

// Of OpenGL, whose header is not needed for them.
using Buffer = unsigned;

} // namespace

void serve_driver_addresses(Entries &entries) {
    serve<served_cuModuleGetGlobal_v2, size_t *, CUmodule, const char *>(entries);
    serve<served_cuLibraryGetGlobal, size_t *, CUlibrary, const char *>(entries);
    serve<served_cuLibraryGetManaged, size_t *, CUlibrary, const char *>(entries);
    serve<served_cuMemPoolImportPointer, CUmemoryPool, CUmemPoolPtrExportData *>(entries);
    serve<served_cuExternalMemoryGetMappedBuffer, CUexternalMemory,
          const CUDA_EXTERNAL_MEMORY_BUFFER_DESC *>(entries);
    serve<served_cuGraphicsResourceGetMappedPointer_v2, size_t *, CUgraphicsResource>(entries);
    serve<served_cuGLMapBufferObject_v2, size_t *, Buffer>(entries);
    serve<served_cuGLMapBufferObject_v2_ptds, size_t *, Buffer>(entries);
    serve<served_cuGLMapBufferObjectAsync_v2, size_t *, Buffer, CUstream>(entries);
    serve<served_cuGLMapBufferObjectAsync_v2_ptsz, size_t *, Buffer, CUstream>(entries);
}

} // namespace emm::run

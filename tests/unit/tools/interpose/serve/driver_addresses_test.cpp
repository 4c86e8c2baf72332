#include "served_process.h"

using namespace emm::run;

namespace {

CUdeviceptr handed_out = 0; // by each stand-in for the driver's entries

template <class... More> CUresult hand_out(CUdeviceptr *ret_ptr, More...) {
    *ret_ptr = handed_out;
    return CUDA_SUCCESS;
}

template <class... More> using HandOut = CUresult (*)(CUdeviceptr *, More...);

template <class... More> Entry stand_in() {
    return reinterpret_cast<Entry>(HandOut<More...>(&hand_out<More...>));
}

} // namespace

void emm::run::stand_in_for_addresses(Entries &found) {
    const Entry variable = stand_in<size_t *, void *, const char *>();
    found.at[served_cuModuleGetGlobal_v2] = variable;
    found.at[served_cuLibraryGetGlobal] = variable;
    found.at[served_cuLibraryGetManaged] = variable;
    const Entry import = stand_in<void *, void *>();
    found.at[served_cuMemPoolImportPointer] = import;
    found.at[served_cuExternalMemoryGetMappedBuffer] = import;
    found.at[served_cuGraphicsResourceGetMappedPointer_v2] = import;
    const Entry map = stand_in<size_t *, unsigned>();
    found.at[served_cuGLMapBufferObject_v2] = found.at[served_cuGLMapBufferObject_v2_ptds] = map;
    const Entry map_on_stream = stand_in<size_t *, unsigned, CUstream>();
    found.at[served_cuGLMapBufferObjectAsync_v2] =
        found.at[served_cuGLMapBufferObjectAsync_v2_ptsz] = map_on_stream;
}

namespace {

using Allocate = CUresult (*)(CUdeviceptr *, size_t);
using Free = CUresult (*)(CUdeviceptr);

constexpr size_t size = 4 << 20;

// The address of a block of emm's that the program has freed.
CUdeviceptr freed_block() {
    const Context context;
    CUdeviceptr block = 0;
    REQUIRE(process().emm<Allocate>(served_cuMemAlloc_v2)(&block, size) == CUDA_SUCCESS);
    REQUIRE(process().emm<Free>(served_cuMemFree_v2)(block) == CUDA_SUCCESS);
    return block;
}

CUresult range_at(CUdeviceptr address, CUdeviceptr *ret_base) {
    using Range = CUresult (*)(CUdeviceptr *, size_t *, CUdeviceptr);
    return process().emm<Range>(served_cuMemGetAddressRange_v2)(ret_base, nullptr, address);
}

// The driver now has a block there, and the program learns of it by that entry.
template <class... More> void learns_of_memory_by(Served entry) {
    INFO(symbol_of(entry));
    const CUdeviceptr freed = freed_block();
    const Context context;
    CUdeviceptr base = 0, ptr = 0;
    REQUIRE(process().driver<Allocate>(served_cuMemAlloc_v2)(&handed_out, size) == CUDA_SUCCESS);
    REQUIRE(handed_out == freed);
    CHECK(range_at(freed, &base) == CUDA_ERROR_NOT_FOUND);
    const auto learn = process().emm<HandOut<More...>>(entry);
    REQUIRE(learn);
    CHECK(learn(&ptr, More()...) == CUDA_SUCCESS);
    CHECK(ptr == freed);
    CHECK(range_at(freed, &base) == CUDA_SUCCESS);
    CHECK(base == freed);
    CHECK(process().emm<Free>(served_cuMemFree_v2)(freed) == CUDA_SUCCESS);
}

} // namespace

TEST_CASE("an address that the driver hands out is freed no more, whichever entry does so") {
    INFO(process().problem());
    REQUIRE(process().serves());
    using Size = size_t *;
    learns_of_memory_by<Size, CUmodule, const char *>(served_cuModuleGetGlobal_v2);
    learns_of_memory_by<Size, CUlibrary, const char *>(served_cuLibraryGetGlobal);
    learns_of_memory_by<Size, CUlibrary, const char *>(served_cuLibraryGetManaged);
    learns_of_memory_by<CUmemoryPool, CUmemPoolPtrExportData *>(served_cuMemPoolImportPointer);
    learns_of_memory_by<CUexternalMemory, const CUDA_EXTERNAL_MEMORY_BUFFER_DESC *>(
        served_cuExternalMemoryGetMappedBuffer);
    learns_of_memory_by<Size, CUgraphicsResource>(served_cuGraphicsResourceGetMappedPointer_v2);
    learns_of_memory_by<Size, unsigned>(served_cuGLMapBufferObject_v2);
    learns_of_memory_by<Size, unsigned>(served_cuGLMapBufferObject_v2_ptds);
    learns_of_memory_by<Size, unsigned, CUstream>(served_cuGLMapBufferObjectAsync_v2);
    learns_of_memory_by<Size, unsigned, CUstream>(served_cuGLMapBufferObjectAsync_v2_ptsz);
}

// The driver's memory that emm counts and passes on.
#include "cases.h"
#include "objects.h"

namespace {

CUmemAllocationProp on_device_0() {
    CUmemAllocationProp properties = {};
    properties.type = CU_MEM_ALLOCATION_TYPE_PINNED;
    properties.location.type = CU_MEM_LOCATION_TYPE_DEVICE;
    properties.location.id = 0;
    return properties;
}

// Two pieces of physical memory, one mapped twice; in the end one mapping and its memory are left.
void mapped_memory(CUstream stream) {
    constexpr size_t size = 2 * mib;
    const CUmemAllocationProp properties = on_device_0();
    CUmemGenericAllocationHandle first = 0, second = 0, again = 0;
    CUdeviceptr range = 0;
    CUmemAccessDesc access = {};
    access.location = properties.location;
    access.flags = CU_MEM_ACCESS_FLAGS_PROT_READWRITE;
    result(cu.cuMemCreate(&first, size, &properties, 0), CUDA_SUCCESS, "cuMemCreate");
    result(cu.cuMemCreate(&second, size, &properties, 0), CUDA_SUCCESS, "cuMemCreate");
    NEED(cu.cuMemAddressReserve(&range, 3 * size, 0, 0, 0));
    for (const size_t place : {0, 1, 2}) {
        NEED(cu.cuMemMap(range + place * size, size, 0, place == 2 ? second : first, 0));
    }
    NEED(cu.cuMemSetAccess(range, 3 * size, &access, 1));
    NEED(fill(range, mib, 141, stream));
    fact(holds(range + size, mib, 141, stream), "memory that is mapped twice: bytes ok");
    result(cu.cuMemRetainAllocationHandle(&again, reinterpret_cast<void *>(range)), CUDA_SUCCESS,
           "a further handle");
    NEED(cu.cuMemRelease(again));
    result(cu.cuMemUnmap(range, 2 * size), CUDA_SUCCESS, "unmap of two");
    result(cu.cuMemRelease(first), CUDA_SUCCESS, "release");
}

void arrays(CUcontext context) {
    CUcontext own = nullptr;
    CUarray array = nullptr, left = nullptr;
    CUmipmappedArray mipmapped = nullptr;
    CUDA_ARRAY_DESCRIPTOR flat = {};
    flat.Width = 1024;
    flat.Height = 256;
    flat.Format = CU_AD_FORMAT_FLOAT;
    flat.NumChannels = 4;
    CUDA_ARRAY3D_DESCRIPTOR deep = {};
    deep.Width = deep.Height = deep.Depth = 64;
    deep.Format = CU_AD_FORMAT_UNSIGNED_INT8;
    deep.NumChannels = 1;
    const uint64_t before = free_memory();
    result(cu.cuArrayCreate(&array, &flat), CUDA_SUCCESS, "cuArrayCreate");
    fact(free_memory() + 4 * mib <= before, "an array takes memory");
    constexpr unsigned levels = 1 << 20; // 7 fit
    result(cu.cuMipmappedArrayCreate(&mipmapped, &deep, levels), CUDA_SUCCESS,
           "cuMipmappedArrayCreate");
    CUDA_ARRAY_DESCRIPTOR told = {};
    NEED(cu.cuArrayGetDescriptor(&told, array));
    fact(told.Width == 1024 && told.NumChannels == 4, "it tells what it is");
    result(cu.cuArrayDestroy(array), CUDA_SUCCESS, "cuArrayDestroy");
    result(cu.cuMipmappedArrayDestroy(mipmapped), CUDA_SUCCESS, "cuMipmappedArrayDestroy");
    NEED(cu.cuCtxCreate_v2(&own, 0, 0));
    result(cu.cuArray3DCreate(&left, &deep), CUDA_SUCCESS, "cuArray3DCreate");
    result(cu.cuCtxDestroy(own), CUDA_SUCCESS, "the end of its context");
    NEED(cu.cuCtxSetCurrent(context));
    fact(free_memory() + mib >= before, "and their memory is free");
}

// A graph that allocates 3 MiB and frees them itself.
void nodes(CUstream stream) {
    CUgraph graph = nullptr;
    CUgraphExec executable = nullptr;
    CUgraphNode allocates = nullptr, frees = nullptr;
    CUDA_MEM_ALLOC_NODE_PARAMS params = {};
    params.poolProps.allocType = CU_MEM_ALLOCATION_TYPE_PINNED;
    params.poolProps.location.type = CU_MEM_LOCATION_TYPE_DEVICE;
    params.bytesize = 3 * mib;
    NEED(cu.cuGraphCreate(&graph, 0));
    result(cu.cuGraphAddMemAllocNode(&allocates, graph, nullptr, 0, &params), CUDA_SUCCESS,
           "cuGraphAddMemAllocNode");
    result(cu.cuGraphAddMemFreeNode(&frees, graph, &allocates, 1, params.dptr), CUDA_SUCCESS,
           "cuGraphAddMemFreeNode");
    NEED(cu.cuGraphInstantiateWithFlags(&executable, graph, 0));
    NEED(cu.cuGraphDestroy(graph));
    for (const char *which : {"first", "second"}) {
        result(cu.cuGraphLaunch(executable, stream), CUDA_SUCCESS, "%s launch", which);
    }
    NEED(cu.cuStreamSynchronize(stream));
    NEED(cu.cuGraphExecDestroy(executable));
}

// --- the driver's memory after large frees -----------------------------------------------------

// Three quarters of the free memory are allocated, used and freed, so a plugin may cache as much.
void free_most(size_t free, CUstream stream) {
    const CUdeviceptr memory = allocate(free / 4 * 3 / mib * mib);
    NEED(fill(memory, mib, 145, stream));
    NEED(cu.cuMemFree(memory));
    NEED(cu.cuCtxSynchronize());
}

CUDA_ARRAY3D_DESCRIPTOR array_of(size_t size) {
    CUDA_ARRAY3D_DESCRIPTOR array = {};
    array.Width = array.Height = 4096;
    array.Depth = size / (256 * mib);
    array.Format = CU_AD_FORMAT_FLOAT;
    array.NumChannels = 4;
    return array;
}

void physical_memory_is_had(size_t size) {
    const CUmemAllocationProp properties = on_device_0();
    CUmemGenericAllocationHandle handle = 0;
    result(cu.cuMemCreate(&handle, size, &properties, 0), CUDA_SUCCESS, "cuMemCreate");
    NEED(cu.cuMemRelease(handle));
}

void arrays_are_had(size_t size, size_t free, CUstream stream) {
    const CUDA_ARRAY3D_DESCRIPTOR wanted = array_of(size);
    CUarray array = nullptr;
    CUmipmappedArray mipmapped = nullptr;
    result(cu.cuArray3DCreate(&array, &wanted), CUDA_SUCCESS, "cuArray3DCreate");
    NEED(cu.cuArrayDestroy(array));
    free_most(free, stream);
    result(cu.cuMipmappedArrayCreate(&mipmapped, &wanted, 1), CUDA_SUCCESS,
           "cuMipmappedArrayCreate");
    NEED(cu.cuMipmappedArrayDestroy(mipmapped));
}

void memory_of_a_pool_is_had(size_t size, CUstream stream) {
    const CUmemoryPool pool = make_pool();
    CUdeviceptr memory = 0;
    result(cu.cuMemAllocFromPoolAsync(&memory, size, pool, stream), CUDA_SUCCESS,
           "cuMemAllocFromPoolAsync");
    NEED(cu.cuMemFreeAsync(memory, stream));
    NEED(cu.cuStreamSynchronize(stream));
    NEED(cu.cuMemPoolDestroy(pool));
}

void memory_of_a_graph_is_had(size_t size) {
    CUgraph graph = nullptr;
    CUgraphNode allocates = nullptr;
    CUDA_MEM_ALLOC_NODE_PARAMS params = {};
    params.poolProps.allocType = CU_MEM_ALLOCATION_TYPE_PINNED;
    params.poolProps.location.type = CU_MEM_LOCATION_TYPE_DEVICE;
    params.bytesize = size;
    NEED(cu.cuGraphCreate(&graph, 0));
    result(cu.cuGraphAddMemAllocNode(&allocates, graph, nullptr, 0, &params), CUDA_SUCCESS,
           "cuGraphAddMemAllocNode");
    NEED(cu.cuGraphDestroy(graph));
}

} // namespace

void after_large_frees_case() {
    const Primary primary;
    const Stream stream;
    const size_t free = free_memory(), size = free / 2 / (256 * mib) * (256 * mib);
    free_most(free, stream);
    physical_memory_is_had(size);
    free_most(free, stream);
    arrays_are_had(size, free, stream);
    free_most(free, stream);
    memory_of_a_pool_is_had(size, stream);
    free_most(free, stream);
    memory_of_a_graph_is_had(size);
}

void passed_on_case() {
    const Primary primary;
    const Stream stream;
    mapped_memory(stream);
    arrays(primary.context);
    nodes(stream);
}

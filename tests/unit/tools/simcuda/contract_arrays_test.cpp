// Behaviour: CUDA's promises about arrays: the same on real hardware and simulated.
#include "captures.h"

namespace {

CUDA_ARRAY3D_DESCRIPTOR array_of(size_t width, size_t height, size_t depth, unsigned flags = 0) {
    CUDA_ARRAY3D_DESCRIPTOR descriptor = {};
    descriptor.Width = width;
    descriptor.Height = height;
    descriptor.Depth = depth;
    descriptor.Format = CU_AD_FORMAT_FLOAT;
    descriptor.NumChannels = 1;
    descriptor.Flags = flags;
    return descriptor;
}

CUresult make_array(const CUDA_ARRAY3D_DESCRIPTOR &descriptor) {
    CUarray array = nullptr;
    const CUresult result = cu().cuArray3DCreate(&array, &descriptor);
    if (result == CUDA_SUCCESS) {
        CHECK(cu().cuArrayDestroy(array) == CUDA_SUCCESS);
    }
    return result;
}

size_t free_for_arrays() {
    size_t free = 0, total = 0;
    REQUIRE(cu().cuMemGetInfo(&free, &total) == CUDA_SUCCESS);
    return free;
}

} // namespace

TEST_CASE("an array takes memory until it is destroyed, and tells what it is") {
    const Device device;
    CUDA_ARRAY_DESCRIPTOR descriptor = {4096, 4096, CU_AD_FORMAT_FLOAT, 4}, told = {};
    CUarray array = nullptr;
    const size_t before = free_for_arrays();
    REQUIRE(cu().cuArrayCreate(&array, &descriptor) == CUDA_SUCCESS);
    CHECK(free_for_arrays() + (size_t(4096) * 4096 * 16) <= before);
    REQUIRE(cu().cuArrayGetDescriptor(&told, array) == CUDA_SUCCESS);
    CHECK(told.Width == 4096);
    CHECK(told.Height == 4096);
    CHECK(told.Format == CU_AD_FORMAT_FLOAT);
    CHECK(told.NumChannels == 4);
    CHECK(cu().cuArrayDestroy(array) == CUDA_SUCCESS);
    CHECK(free_for_arrays() + (size_t(4096) * 4096 * 8) > before);
}

TEST_CASE("what is no array's description is refused") {
    const Device device;
    CHECK(make_array(array_of(16, 0, 0)) == CUDA_SUCCESS);
    CHECK(make_array(array_of(16, 16, 16)) == CUDA_SUCCESS);
    CHECK(make_array(array_of(16, 0, 3, CUDA_ARRAY3D_LAYERED)) == CUDA_SUCCESS);
    CHECK(make_array(array_of(16, 16, 6, CUDA_ARRAY3D_CUBEMAP)) == CUDA_SUCCESS);
    CHECK(make_array(array_of(0, 16, 0)) == CUDA_ERROR_INVALID_VALUE);
    CHECK(make_array(array_of(16, 8, 6, CUDA_ARRAY3D_CUBEMAP)) == CUDA_ERROR_INVALID_VALUE);
    CHECK(make_array(array_of(16, 16, 5, CUDA_ARRAY3D_CUBEMAP)) == CUDA_ERROR_INVALID_VALUE);
    CUDA_ARRAY3D_DESCRIPTOR three_channels = array_of(16, 16, 0);
    three_channels.NumChannels = 3;
    CHECK(make_array(three_channels) == CUDA_ERROR_INVALID_VALUE);
}

TEST_CASE("arrays end with their context") {
    const Device device;
    CUcontext context = nullptr;
    CUarray array = nullptr;
    CUmipmappedArray mipmapped = nullptr;
    const CUDA_ARRAY3D_DESCRIPTOR descriptor = array_of(4096, 4096, 0);
    const size_t before = free_for_arrays();
    REQUIRE(cu().create_context(&context, 0, 0) == CUDA_SUCCESS);
    REQUIRE(cu().cuArray3DCreate(&array, &descriptor) == CUDA_SUCCESS);
    REQUIRE(cu().cuMipmappedArrayCreate(&mipmapped, &descriptor, 4) == CUDA_SUCCESS);
    REQUIRE(cu().cuCtxDestroy(context) == CUDA_SUCCESS);
    CHECK(free_for_arrays() + (size_t(4096) * 4096 * 2) > before);
}

TEST_CASE("a graph's nodes allocate at an address that is known at once, and free there") {
    const Device device;
    const Stream stream;
    CUgraph graph = nullptr;
    CUgraphNode allocates = nullptr, frees = nullptr;
    CUDA_MEM_ALLOC_NODE_PARAMS params = {};
    params.poolProps.allocType = CU_MEM_ALLOCATION_TYPE_PINNED;
    params.poolProps.location.type = CU_MEM_LOCATION_TYPE_DEVICE;
    params.bytesize = 4096;
    REQUIRE(cu().cuGraphCreate(&graph, 0) == CUDA_SUCCESS);
    REQUIRE(cu().cuGraphAddMemAllocNode(&allocates, graph, nullptr, 0, &params) == CUDA_SUCCESS);
    CHECK(params.dptr != 0);
    REQUIRE(cu().cuGraphAddMemFreeNode(&frees, graph, &allocates, 1, params.dptr) == CUDA_SUCCESS);
    CHECK(cu().cuGraphAddMemFreeNode(&frees, graph, &allocates, 1, params.dptr) ==
          CUDA_ERROR_INVALID_VALUE);
    const CUgraphExec executable = instantiate(graph);
    CHECK(cu().cuGraphLaunch(executable, stream) == CUDA_SUCCESS);
    CHECK(cu().cuGraphLaunch(executable, stream) == CUDA_SUCCESS);
    CHECK(cu().cuStreamSynchronize(stream) == CUDA_SUCCESS);
    CHECK(cu().cuGraphExecDestroy(executable) == CUDA_SUCCESS);
    CHECK(cu().cuGraphDestroy(graph) == CUDA_SUCCESS);
}

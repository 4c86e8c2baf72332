// Behaviour: an error that no program may make is named, and ends the process.
#include "cuda_driver.h"
#include "in_child.h"

namespace {

std::string misuse(const std::function<void()> &body) {
    const Ending ending = in_child([&] {
        cu().cuInit(0);
        CUcontext context = nullptr;
        cu().cuDevicePrimaryCtxRetain(&context, 0);
        cu().cuCtxPushCurrent(context);
        body();
    });
    CHECK(ending.aborted);
    return ending.text;
}

CUdeviceptr block() {
    CUdeviceptr address = 0;
    cu().cuMemAlloc(&address, 4096);
    return address;
}

} // namespace

TEST_CASE("freeing an address twice is named, with the thread that freed it first") {
    const std::string text = misuse([] {
        const CUdeviceptr address = block();
        cu().cuMemFree(address);
        cu().cuMemFree(address);
    });
    CHECK_THAT(text, ContainsSubstring("misuse: cuMemFree"));
    CHECK_THAT(text, ContainsSubstring("freed by cuMemFree in thread 1"));
}

TEST_CASE("freeing a graph's memory that no launch has left is named") {
    const std::string text = misuse([] {
        CUdeviceptr address = 0;
        CUstream stream = nullptr;
        CUgraph graph = nullptr;
        CUgraphExec executable = nullptr;
        cu().cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING);
        cu().cuStreamBeginCapture(stream, CU_STREAM_CAPTURE_MODE_GLOBAL);
        cu().cuMemAllocAsync(&address, 4096, stream);
        cu().cuStreamEndCapture(stream, &graph);
        cu().cuGraphInstantiate(&executable, graph, 0);
        cu().cuGraphLaunch(executable, stream);
        cu().cuMemFreeAsync(address, stream);
        cu().cuMemFreeAsync(address, stream);
    });
    CHECK_THAT(text, ContainsSubstring("misuse: cuMemFreeAsync"));
    CHECK_THAT(text, ContainsSubstring("no launch has given it to the program"));
}

TEST_CASE("freeing an address inside a block is named") {
    CHECK_THAT(misuse([] { cu().cuMemFree(block() + 256); }),
               ContainsSubstring("is inside device memory"));
}

TEST_CASE("using memory outside any allocation is named") {
    CHECK_THAT(misuse([] { cu().cuMemsetD8(block() + 4000, 0, 200); }),
               ContainsSubstring("in no allocation"));
    CHECK_THAT(misuse([] {
                   const CUdeviceptr address = block();
                   cu().cuMemFree(address);
                   cu().cuMemsetD8(address, 0, 1);
               }),
               ContainsSubstring("freed by cuMemFree"));
}

TEST_CASE("using a destroyed stream or event is named") {
    CHECK_THAT(misuse([] {
                   CUstream stream = nullptr;
                   cu().cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING);
                   cu().cuStreamDestroy(stream);
                   cu().cuStreamDestroy(stream);
               }),
               ContainsSubstring("was destroyed"));
    CHECK_THAT(misuse([] {
                   CUevent event = nullptr;
                   cu().cuEventCreate(&event, CU_EVENT_DISABLE_TIMING);
                   cu().cuEventDestroy(event);
                   cu().cuEventQuery(event);
               }),
               ContainsSubstring("was destroyed"));
}

TEST_CASE("using an event after its context has ended is named") {
    CHECK_THAT(misuse([] {
                   CUcontext context = nullptr;
                   CUevent event = nullptr, later = nullptr;
                   cu().create_context(&context, 0, 0);
                   cu().cuEventCreate(&event, CU_EVENT_DISABLE_TIMING);
                   cu().cuCtxDestroy(context);
                   cu().cuEventCreate(&later, CU_EVENT_DISABLE_TIMING);
                   cu().cuEventDestroy(event);
               }),
               ContainsSubstring("was destroyed"));
}

TEST_CASE("unmapping a part of a mapping is named") {
    CHECK_THAT(misuse([] {
                   CUmemAllocationProp wanted = {};
                   wanted.type = CU_MEM_ALLOCATION_TYPE_PINNED;
                   wanted.location.type = CU_MEM_LOCATION_TYPE_DEVICE;
                   const size_t size = 4 << 20;
                   CUmemGenericAllocationHandle handle = 0;
                   CUdeviceptr range = 0;
                   cu().cuMemCreate(&handle, size, &wanted, 0);
                   cu().cuMemAddressReserve(&range, size, 0, 0, 0);
                   cu().cuMemMap(range, size, 0, handle, 0);
                   cu().cuMemUnmap(range, size / 2);
               }),
               ContainsSubstring("mappings go as a whole"));
}

TEST_CASE("with misuse=error the call fails and the process goes on") {
    const Ending ending = in_child([] {
        cu().configure("misuse=error");
        cu().cuInit(0);
        _exit(cu().cuMemFree(4096) == CUDA_ERROR_INVALID_VALUE ? 7 : 1);
    });
    CHECK(ending.status == 7);
    CHECK_THAT(ending.text, ContainsSubstring("misuse: cuMemFree"));
}

TEST_CASE("destroying a graph that a stream captures into is named") {
    CHECK_THAT(misuse([] {
                   CUstream stream = nullptr;
                   CUgraph graph = nullptr;
                   const auto begin = cu().optional<CUresult (*)(
                       CUstream, CUgraph, const void *, const void *, size_t, CUstreamCaptureMode)>(
                       "cuStreamBeginCaptureToGraph", 12030);
                   cu().cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING);
                   cu().cuGraphCreate(&graph, 0);
                   begin(stream, graph, nullptr, nullptr, 0, CU_STREAM_CAPTURE_MODE_RELAXED);
                   cu().cuGraphDestroy(graph);
               }),
               ContainsSubstring("a stream still captures into graph"));
}

// The program's uses of served entries, one group at a time.
#include "pass.h"

#include <cstdlib>

namespace faults {
namespace {

constexpr size_t mib = size_t(1) << 20;

void plain(Pass &pass) {
    for (const size_t size : {size_t(1000), mib, 9 * mib}) {
        pass.allocate(size);
    }
    CUdeviceptr pitched = 0, managed = 0;
    size_t pitch = 0;
    if (pass.call("cuMemAllocPitch",
                  [&] { return cu.cuMemAllocPitch(&pitched, &pitch, 300, 20, 4); })) {
        pass.undo_later("cuMemFree of it", [=] { return cu.cuMemFree(pitched); });
    }
    if (pass.call("cuMemAllocManaged",
                  [&] { return cu.cuMemAllocManaged(&managed, mib, CU_MEM_ATTACH_GLOBAL); })) {
        pass.undo_later("cuMemFree of it", [=] { return cu.cuMemFree(managed); });
    }
    pass.give_back();
    pass.allocate(5 * mib);
    pass.give_back();
}

void ordered(Pass &pass) {
    CUmemoryPool pool = nullptr;
    must(cu.cuDeviceGetDefaultMemPool(&pool, 0), "cuDeviceGetDefaultMemPool");
    for (const size_t size : {size_t(1000), mib, 9 * mib}) {
        pass.allocate_on(pass.stream(0), size);
        pass.allocate_on(pass.stream(1), size);
        pass.allocate_on(nullptr, size);
    }
    CUdeviceptr ptr = 0;
    if (pass.call("cuMemAllocFromPoolAsync",
                  [&] { return cu.cuMemAllocFromPoolAsync(&ptr, mib, pool, pass.stream(0)); })) {
        must(cu.cuStreamSynchronize(pass.stream(0)), "cuStreamSynchronize");
        pass.undo_later("cuMemFree of it", [=] { return cu.cuMemFree(ptr); });
    }
    pass.give_back();
    pass.call("cuMemPoolTrimTo", [&] { return cu.cuMemPoolTrimTo(pool, 0); });
}

// Freed on a stream of another context.
void elsewhere(Pass &pass) {
    const CUdeviceptr ptr = pass.allocate(mib);
    pass.forget();
    CUcontext other = nullptr;
    CUstream stream = nullptr;
    must(cu.cuCtxCreate_v2(&other, 0, 0), "cuCtxCreate");
    must(cu.cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING), "cuStreamCreate");
    must(cu.cuCtxSetCurrent(pass.context()), "cuCtxSetCurrent");
    must(cu.cuCtxSynchronize(), "cuCtxSynchronize");
    if (ptr && !pass.call("cuMemFreeAsync", [=] { return cu.cuMemFreeAsync(ptr, stream); })) {
        must(cu.cuMemFree(ptr), "cuMemFree of what could not be freed");
    }
    must(cu.cuCtxSetCurrent(other), "cuCtxSetCurrent");
    if (!pass.call("cuCtxDestroy", [=] { return cu.cuCtxDestroy(other); })) {
        must(cu.cuCtxDestroy(other), "cuCtxDestroy of what could not be destroyed");
    }
    must(cu.cuCtxSetCurrent(pass.context()), "cuCtxSetCurrent");
}

void host(Pass &pass) {
    void *pinned = nullptr, *common = nullptr;
    if (pass.call("cuMemHostAlloc", [&] { return cu.cuMemHostAlloc(&pinned, 5000, 0); })) {
        pass.undo_later("cuMemFreeHost", [=] { return cu.cuMemFreeHost(pinned); });
    }
    if (pass.call("cuMemAllocHost", [&] { return cu.cuMemAllocHost(&common, 3 * mib); })) {
        pass.undo_later("cuMemFreeHost", [=] { return cu.cuMemFreeHost(common); });
    }
    alignas(4096) static char own[4096];
    if (pass.call("cuMemHostRegister", [&] { return cu.cuMemHostRegister(own, sizeof own, 0); })) {
        pass.undo_later("cuMemHostUnregister", [] { return cu.cuMemHostUnregister(own); });
    }
    pass.give_back();
}

void questions(Pass &pass) {
    const CUdeviceptr ptr = pass.allocate(mib);
    size_t free = 0, total = 0, size = 0;
    CUdeviceptr base = 0;
    CUcontext context = nullptr;
    pass.call("cuMemGetInfo", [&] { return cu.cuMemGetInfo(&free, &total); });
    pass.call("cuDeviceTotalMem", [&] { return cu.cuDeviceTotalMem(&total, 0); });
    if (!ptr) {
        return;
    }
    pass.call("cuMemGetAddressRange",
              [&] { return cu.cuMemGetAddressRange(&base, &size, ptr + 5000); });
    pass.call("cuPointerGetAttribute", [&] {
        return cu.cuPointerGetAttribute(&context, CU_POINTER_ATTRIBUTE_CONTEXT, ptr);
    });
    pass.give_back();
}

void streams(Pass &pass) {
    for (int i = 0; i < 3; i++) {
        CUstream stream = nullptr;
        if (pass.call("cuStreamCreate",
                      [&] { return cu.cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING); })) {
            pass.undo_later("cuStreamDestroy", [=] { return cu.cuStreamDestroy(stream); });
            pass.allocate_on(stream, mib);
            pass.give_back();
        }
    }
}

void order(CUstream before, CUstream after, Pass &pass) {
    CUevent event = nullptr;
    must(cu.cuEventCreate(&event, CU_EVENT_DISABLE_TIMING), "cuEventCreate");
    if (cu.cuEventRecord(event, before) == CUDA_SUCCESS) {
        pass.call("cuStreamWaitEvent", [&] { return cu.cuStreamWaitEvent(after, event, 0); });
    }
    must(cu.cuEventDestroy(event), "cuEventDestroy");
}

// Memory that the capture allocates and frees, on a stream that joins too.
void captures(Pass &pass) {
    const CUstream origin = pass.stream(0), other = pass.stream(1);
    CUgraph graph = nullptr;
    if (!pass.call("cuStreamBeginCapture", [&] {
            return cu.cuStreamBeginCapture(origin, CU_STREAM_CAPTURE_MODE_GLOBAL);
        })) {
        return;
    }
    CUdeviceptr blocks[2] = {};
    for (CUdeviceptr &block : blocks) {
        pass.call("cuMemAllocAsync", [&] { return cu.cuMemAllocAsync(&block, 5000, origin); });
    }
    if (!pass.has_failed()) {
        order(origin, other, pass);
        order(other, origin, pass);
    }
    for (const CUdeviceptr block : blocks) {
        if (block) {
            pass.call("cuMemFreeAsync", [=] { return cu.cuMemFreeAsync(block, origin); });
        }
    }
    if (pass.call("cuStreamEndCapture", [&] { return cu.cuStreamEndCapture(origin, &graph); })) {
        must(cu.cuGraphDestroy(graph), "cuGraphDestroy");
    } else if (cu.cuStreamEndCapture(origin, &graph) == CUDA_SUCCESS) {
        must(cu.cuGraphDestroy(graph), "cuGraphDestroy");
    }
    pass.allocate_on(origin, mib);
    pass.give_back();
}

void end_graph(Pass &pass, CUgraph graph) {
    if (!pass.call("cuGraphDestroy", [&] { return cu.cuGraphDestroy(graph); })) {
        must(cu.cuGraphDestroy(graph), "cuGraphDestroy of what could not be destroyed");
    }
}

void end_executable(Pass &pass, CUgraphExec graph) {
    if (!pass.call("cuGraphExecDestroy", [=] { return cu.cuGraphExecDestroy(graph); })) {
        must(cu.cuGraphExecDestroy(graph), "cuGraphExecDestroy of what could not be destroyed");
    }
}

// A graph that leaves memory to the program; NULL: something failed.
CUgraph leaving_graph(Pass &pass, CUdeviceptr &ret_left) {
    CUgraph graph = nullptr;
    must(cu.cuStreamBeginCapture(pass.stream(0), CU_STREAM_CAPTURE_MODE_GLOBAL),
         "cuStreamBeginCapture");
    const bool allocated = pass.call("cuMemAllocAsync in a capture", [&] {
        return cu.cuMemAllocAsync(&ret_left, 5000, pass.stream(0));
    });
    if (cu.cuStreamEndCapture(pass.stream(0), &graph) != CUDA_SUCCESS) {
        return nullptr;
    }
    if (!allocated) {
        end_graph(pass, graph);
    }
    return allocated ? graph : nullptr;
}

CUgraphExec leaving_executable(Pass &pass, CUdeviceptr &ret_left) {
    CUgraphExec made = nullptr;
    if (const CUgraph graph = leaving_graph(pass, ret_left)) {
        pass.call("cuGraphInstantiate",
                  [&] { return cu.cuGraphInstantiateWithFlags(&made, graph, 0); });
        end_graph(pass, graph);
    }
    return made;
}

// Memory that is freed between launches, and finally after the graph's end.
void left(Pass &pass) {
    CUdeviceptr ptr = 0;
    const CUstream stream = pass.stream(0);
    const CUgraphExec graph = leaving_executable(pass, ptr);
    if (!graph) {
        return;
    }
    bool has_left = false;
    for (int i = 0; i < 3 && !has_left; i++) {
        has_left = pass.call("cuGraphLaunch", [&] { return cu.cuGraphLaunch(graph, stream); });
        if (has_left && i < 2) {
            has_left = !pass.call("cuMemFreeAsync of a graph's memory",
                                  [=] { return cu.cuMemFreeAsync(ptr, stream); });
        }
    }
    must(cu.cuStreamSynchronize(stream), "cuStreamSynchronize");
    end_executable(pass, graph);
    if (has_left) {
        pass.undo_later("cuMemFree after the graph's end", [=] { return cu.cuMemFree(ptr); });
    }
    pass.give_back();
    pass.allocate_on(stream, mib);
    pass.give_back();
}

// A launch that leaves the memory of the graph of an update; a node of a third graph frees it.
void updated(Pass &pass) {
    CUdeviceptr first = 0, second = 0;
    CUgraphExecUpdateResultInfo info = {};
    CUgraphNode node = nullptr;
    CUgraph freeing = nullptr;
    CUgraphExec frees = nullptr;
    const CUstream stream = pass.stream(0);
    const CUgraphExec leaves = leaving_executable(pass, first);
    const CUgraph graph = leaves ? leaving_graph(pass, second) : nullptr;
    if (!graph) {
        return leaves ? end_executable(pass, leaves) : void();
    }
    const bool is_updated =
        pass.call("cuGraphExecUpdate", [&] { return cu.cuGraphExecUpdate(leaves, graph, &info); });
    const CUdeviceptr left = is_updated ? second : first;
    must(cu.cuGraphCreate(&freeing, 0), "cuGraphCreate");
    const bool has_node = pass.call("cuGraphAddMemFreeNode", [&] {
        return cu.cuGraphAddMemFreeNode(&node, freeing, nullptr, 0, left);
    });
    must(cu.cuGraphInstantiateWithFlags(&frees, freeing, 0), "cuGraphInstantiate");
    end_graph(pass, freeing);
    end_graph(pass, graph);
    bool has_left = pass.call("cuGraphLaunch", [&] { return cu.cuGraphLaunch(leaves, stream); });
    if (has_left && has_node) {
        has_left = !pass.call("cuGraphLaunch of a graph that frees",
                              [&] { return cu.cuGraphLaunch(frees, stream); });
    }
    must(cu.cuStreamSynchronize(stream), "cuStreamSynchronize");
    end_executable(pass, leaves);
    end_executable(pass, frees);
    if (has_left) {
        pass.undo_later("cuMemFree of an updated graph's memory",
                        [=] { return cu.cuMemFree(left); });
    }
    pass.give_back();
}

// The primary context ends, and its memory with it.
void primary(Pass &pass) {
    CUcontext context = nullptr;
    CUdeviceptr ptr = 0;
    if (pass.call("cuDevicePrimaryCtxRetain",
                  [&] { return cu.cuDevicePrimaryCtxRetain(&context, 0); })) {
        must(cu.cuCtxSetCurrent(context), "cuCtxSetCurrent");
        pass.call("cuMemAlloc", [&] { return cu.cuMemAlloc(&ptr, mib); });
        must(cu.cuCtxSetCurrent(pass.context()), "cuCtxSetCurrent");
        if (!pass.call("cuDevicePrimaryCtxRelease",
                       [] { return cu.cuDevicePrimaryCtxRelease(0); })) {
            must(cu.cuDevicePrimaryCtxRelease(0), "cuDevicePrimaryCtxRelease");
        }
    }
    // A check whether a context is the primary one retains the primary context, and the driver may
    // refuse to take it back.
    unsigned flags = 0;
    int active = 0;
    must(cu.cuDevicePrimaryCtxGetState(0, &flags, &active), "cuDevicePrimaryCtxGetState");
    if (active) {
        must(cu.cuDevicePrimaryCtxRelease(0), "cuDevicePrimaryCtxRelease of what is left");
    }
}

void peers(Pass &pass) {
    CUcontext other = nullptr;
    must(cu.cuCtxCreate_v2(&other, 0, 1), "cuCtxCreate");
    if (pass.call("cuCtxEnablePeerAccess",
                  [&] { return cu.cuCtxEnablePeerAccess(pass.context(), 0); })) {
        pass.call("cuCtxDisablePeerAccess",
                  [&] { return cu.cuCtxDisablePeerAccess(pass.context()); });
    }
    must(cu.cuCtxDestroy(other), "cuCtxDestroy");
    must(cu.cuCtxSetCurrent(pass.context()), "cuCtxSetCurrent");
    pass.allocate(9 * mib);
    pass.give_back();
}

void sharing(Pass &pass) {
    CUipcMemHandle handle = {};
    if (const CUdeviceptr ptr = pass.allocate(3 * mib)) {
        pass.call("cuIpcGetMemHandle", [&] {
            const CUresult result = cu.cuIpcGetMemHandle(&handle, ptr);
            return result == CUDA_ERROR_INVALID_VALUE ? CUDA_SUCCESS : result; // not every plugin
        });
    }
    pass.give_back();
}

// Memory of the driver's own, in each kind that the account has.
void passed_on(Pass &pass) {
    CUmemAllocationProp properties = {};
    properties.type = CU_MEM_ALLOCATION_TYPE_PINNED;
    properties.location.type = CU_MEM_LOCATION_TYPE_DEVICE;
    CUmemGenericAllocationHandle handle = 0;
    CUdeviceptr range = 0, pooled = 0;
    must(cu.cuMemAddressReserve(&range, 2 * mib, 0, 0, 0), "cuMemAddressReserve");
    pass.undo_later("cuMemAddressFree", [=] { return cu.cuMemAddressFree(range, 2 * mib); });
    const bool made =
        pass.call("cuMemCreate", [&] { return cu.cuMemCreate(&handle, 2 * mib, &properties, 0); });
    if (made && pass.call("cuMemMap", [&] { return cu.cuMemMap(range, 2 * mib, 0, handle, 0); })) {
        pass.undo_later("cuMemUnmap", [=] { return cu.cuMemUnmap(range, 2 * mib); });
    }
    if (made) { // before its mapping
        pass.undo_later("cuMemRelease", [=] { return cu.cuMemRelease(handle); });
    }
    pass.give_back();
    CUDA_ARRAY_DESCRIPTOR flat = {};
    flat.Width = flat.Height = 1024;
    flat.Format = CU_AD_FORMAT_FLOAT;
    flat.NumChannels = 1;
    CUarray array = nullptr;
    if (pass.call("cuArrayCreate", [&] { return cu.cuArrayCreate(&array, &flat); })) {
        pass.undo_later("cuArrayDestroy", [=] { return cu.cuArrayDestroy(array); });
    }
    CUmemPoolProps pool_properties = {};
    pool_properties.allocType = CU_MEM_ALLOCATION_TYPE_PINNED;
    pool_properties.location = properties.location;
    CUmemoryPool pool = nullptr;
    if (pass.call("cuMemPoolCreate", [&] { return cu.cuMemPoolCreate(&pool, &pool_properties); })) {
        pass.undo_later("cuMemPoolDestroy", [=] { return cu.cuMemPoolDestroy(pool); });
        if (pass.call("cuMemAllocFromPoolAsync", [&] {
                return cu.cuMemAllocFromPoolAsync(&pooled, mib, pool, pass.stream(0));
            })) {
            pass.undo_later("cuMemFreeAsync",
                            [=, &pass] { return cu.cuMemFreeAsync(pooled, pass.stream(0)); });
        }
    }
    pass.give_back();
}

// A pool of the program's own that keeps freed memory, and ends while its memory is in use.
void own_pool(Pass &pass) {
    CUmemPoolProps properties = {};
    properties.allocType = CU_MEM_ALLOCATION_TYPE_PINNED;
    properties.location.type = CU_MEM_LOCATION_TYPE_DEVICE;
    CUmemoryPool pool = nullptr;
    uint64_t threshold = ~uint64_t(0), bytes = 0;
    if (!pass.call("cuMemPoolCreate", [&] { return cu.cuMemPoolCreate(&pool, &properties); })) {
        return;
    }
    pass.call("cuMemPoolSetAttribute", [&] {
        return cu.cuMemPoolSetAttribute(pool, CU_MEMPOOL_ATTR_RELEASE_THRESHOLD, &threshold);
    });
    CUdeviceptr blocks[3] = {};
    for (CUdeviceptr &block : blocks) {
        pass.call("cuMemAllocFromPoolAsync", [&] {
            return cu.cuMemAllocFromPoolAsync(&block, 5 * mib, pool, pass.stream(0));
        });
    }
    pass.call("cuMemPoolGetAttribute", [&] {
        return cu.cuMemPoolGetAttribute(pool, CU_MEMPOOL_ATTR_USED_MEM_CURRENT, &bytes);
    });
    const auto free = [&](CUdeviceptr block) {
        if (block && !pass.call("cuMemFreeAsync",
                                [&] { return cu.cuMemFreeAsync(block, pass.stream(0)); })) {
            must(cu.cuMemFreeAsync(block, pass.stream(0)), "cuMemFreeAsync of what was not freed");
        }
    };
    free(blocks[0]);
    pass.call("cuMemPoolTrimTo", [&] { return cu.cuMemPoolTrimTo(pool, 0); });
    if (!pass.call("cuMemPoolDestroy", [&] { return cu.cuMemPoolDestroy(pool); })) {
        must(cu.cuMemPoolDestroy(pool), "cuMemPoolDestroy of what was not destroyed");
    }
    free(blocks[1]);
    free(blocks[2]);
    must(cu.cuStreamSynchronize(pass.stream(0)), "cuStreamSynchronize");
}

} // namespace

const std::vector<Workload> workloads = {
    {"plain", plain},       {"ordered", ordered},     {"elsewhere", elsewhere},
    {"host", host},         {"questions", questions}, {"streams", streams},
    {"captures", captures}, {"primary", primary},     {"peers", peers},
    {"sharing", sharing},   {"passed on", passed_on}, {"left", left},
    {"updated", updated},   {"own pool", own_pool},
};

} // namespace faults

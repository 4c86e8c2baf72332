// Streams, memory pools and contexts that come and go under the traffic.
#include "worker.h"

#include <algorithm>
#include <simcuda.h>

namespace {

constexpr CUdevice common_device = 2; // of Machine::has_common_context

// A kernel of the stream's context, which reaches the memory that the context may use.
CUresult write_by_kernel(const Block &block, CUstream stream) {
    void *entry = nullptr;
    check(find_simulator_entry("simcuda_launch", &entry), "simcuda_launch");
    const simcuda_range range = {block.ptr, block.size, 1, 0};
    return CUresult(
        reinterpret_cast<decltype(&simcuda_launch)>(entry)(stream, nullptr, nullptr, &range, 1));
}

} // namespace

// --- streams -------------------------------------------------------------------------------------

void Worker::make_stream(Stream &stream) {
    stream.blocking = chance_.one_in(4);
    const unsigned flags = stream.blocking ? CU_STREAM_DEFAULT : CU_STREAM_NON_BLOCKING;
    check(chance_.one_in(2) ? cu.cuStreamCreate(&stream.handle, flags)
                            : cu.cuStreamCreateWithPriority(&stream.handle, flags, 0),
          "a stream");
}

// The stream's work need not be done, and its handle may come back at once, for this thread or for
// another.
void Worker::replace_stream() {
    Stream &stream = mine_->streams[below(own_streams)];
    order(stream.handle, CU_STREAM_PER_THREAD);
    for (Block &block : mine_->blocks) {
        block.stream = block.stream == stream.handle ? CU_STREAM_PER_THREAD : block.stream;
    }
    for (Graph &graph : mine_->graphs) {
        for (CUstream *last : {&graph.block.stream, &graph.left.stream}) {
            *last = *last == stream.handle ? CU_STREAM_PER_THREAD : *last;
        }
    }
    wander();
    check(cu.cuStreamDestroy(stream.handle), "cuStreamDestroy");
    enter(place_);
    make_stream(stream);
}

// --- memory pools --------------------------------------------------------------------------------

// A pool ends when its last block is freed. With it, the device's own pool is current again.
void Worker::make_or_end_pool() {
    const CUdevice device = world_.places[place_].device;
    if (mine_->pool) {
        check(cu.cuMemPoolDestroy(mine_->pool), "cuMemPoolDestroy");
        mine_->pool = nullptr;
        return;
    }
    CUmemPoolProps properties = {};
    properties.allocType = CU_MEM_ALLOCATION_TYPE_PINNED;
    properties.location.type = CU_MEM_LOCATION_TYPE_DEVICE;
    properties.location.id = device;
    check(cu.cuMemPoolCreate(&mine_->pool, &properties), "cuMemPoolCreate");
    change_pool();
    if (chance_.one_in(4)) {
        check(cu.cuDeviceSetMemPool(device, mine_->pool), "cuDeviceSetMemPool");
    }
}

// Changes whether the pool keeps freed memory.
void Worker::change_pool() {
    uint64_t threshold = chance_.one_in(4) ? 0 : ~uint64_t(0);
    check(cu.cuMemPoolSetAttribute(mine_->pool, CU_MEMPOOL_ATTR_RELEASE_THRESHOLD, &threshold),
          "cuMemPoolSetAttribute");
}

void Worker::trim() {
    CUmemoryPool pool = nullptr;
    check(cu.cuDeviceGetDefaultMemPool(&pool, world_.places[place_].device),
          "cuDeviceGetDefaultMemPool");
    if (mine_->pool && chance_.one_in(2)) {
        pool = mine_->pool;
        change_pool();
    }
    check(cu.cuMemPoolTrimTo(pool, chance_.one_in(2) ? 0 : below(64) << 20), "cuMemPoolTrimTo");
}

// --- contexts ------------------------------------------------------------------------------------

// Plain memory, pinned memory and the stream may be left to the end of the context.
void Worker::use_a_life(CUstream stream, CUdevice device) {
    for (int i = 0; i < 6; i++) {
        Block block;
        block.kind = chance_.one_in(2) ? Kind::plain : Kind::ordered;
        block.size = chance_.size();
        block.stream = stream;
        if (!has_got(allocate_as(block), "an allocation in a short life")) {
            continue;
        }
        use(block, stream);
        look_into(block);
        if (block.kind == Kind::ordered || chance_.one_in(2)) {
            check(cu.cuMemFreeAsync(block.ptr, stream), "cuMemFreeAsync in a short life");
        }
    }
    reach_from(device, stream);
}

// From another device, to plain memory of the thread's.
void Worker::reach_from(CUdevice device, CUstream stream) {
    const Place &place = world_.places[place_];
    Block *const block = &mine_->blocks[below(mine_->blocks.size())];
    if (place.device == device || block->kind != Kind::plain) {
        return;
    }
    CUcontext here = nullptr;
    check(cu.cuCtxGetCurrent(&here), "cuCtxGetCurrent");
    const CUresult enabled = cu.cuCtxEnablePeerAccess(place.context, 0);
    if (enabled != CUDA_ERROR_PEER_ACCESS_ALREADY_ENABLED) {
        check(enabled, "cuCtxEnablePeerAccess");
    }
    enter(place_);
    const CUstream home = block->stream;
    order(home, stream);
    check(cu.cuCtxSetCurrent(here), "cuCtxSetCurrent");
    if (device != common_device && world_.machine.is_simulated) { // shared by threads
        check(write_by_kernel(*block, stream), "a kernel that uses memory of another device");
    }
    use(*block, stream);
    order(stream, all_[place_].streams[0].handle);
    block->stream = all_[place_].streams[0].handle;
    if (enabled == CUDA_SUCCESS && chance_.one_in(2)) {
        const CUresult disabled = cu.cuCtxDisablePeerAccess(place.context);
        if (disabled != CUDA_ERROR_PEER_ACCESS_NOT_ENABLED) { // by another thread, meanwhile
            check(disabled, "cuCtxDisablePeerAccess");
        }
    }
}

void Worker::live_in_own_context() {
    CUcontext context = nullptr;
    const auto device = CUdevice(below(size_t(std::min(world_.machine.devices, 2))));
    void *host = nullptr;
    Stream stream;
    if (!has_got(cu.cuCtxCreate_v2(&context, 0, device), "cuCtxCreate")) {
        return;
    }
    make_stream(stream);
    use_a_life(stream.handle, device);
    check(cu.cuMemHostAlloc(&host, 5000, 0), "cuMemHostAlloc");
    if (chance_.one_in(2)) {
        check(cu.cuMemFreeHost(host), "cuMemFreeHost");
    }
    if (chance_.one_in(2)) {
        check(cu.cuStreamDestroy(stream.handle), "cuStreamDestroy");
    }
    if (chance_.one_in(2)) { // the contexts below may have ended
        CUcontext popped = nullptr;
        check(cu.cuCtxPopCurrent(&popped), "cuCtxPopCurrent");
        check(cu.cuCtxSetCurrent(world_.places[place_].context), "cuCtxSetCurrent");
    }
    check(cu.cuCtxDestroy(context), "cuCtxDestroy");
}

// The primary context of the last device. It ends with its last user and comes back with the next.
void Worker::live_in_common_context() {
    constexpr CUdevice device = common_device;
    if (!world_.machine.has_common_context()) {
        return;
    }
    CUcontext context = nullptr;
    Stream stream;
    check(cu.cuDevicePrimaryCtxRetain(&context, device), "cuDevicePrimaryCtxRetain");
    check(cu.cuCtxSetCurrent(context), "cuCtxSetCurrent");
    make_stream(stream);
    use_a_life(stream.handle, device);
    if (may_meet()) {
        return release_beside_host_function(stream.handle, device);
    }
    check(cu.cuStreamDestroy(stream.handle), "cuStreamDestroy");
    check(cu.cuDevicePrimaryCtxRelease(device), "cuDevicePrimaryCtxRelease");
}

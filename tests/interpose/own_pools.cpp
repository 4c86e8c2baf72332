// Memory pools of the program's own, above all pools that keep freed memory.
#include "cases.h"
#include "objects.h"

#include <atomic>
#include <thread>

namespace {

CUdeviceptr allocate_from(CUmemoryPool pool, size_t size, CUstream stream) {
    CUdeviceptr address = 0;
    NEED(cu.cuMemAllocFromPoolAsync(&address, size, pool, stream));
    return address;
}

void free_and_wait(CUdeviceptr address, CUstream stream) {
    NEED(cu.cuMemFreeAsync(address, stream));
    NEED(cu.cuStreamSynchronize(stream));
}

void set(CUmemoryPool pool, CUmemPool_attribute attribute, uint64_t value) {
    NEED(cu.cuMemPoolSetAttribute(pool, attribute, &value));
}

void is_as_asked_for(CUmemoryPool pool) {
    uint64_t threshold = 0;
    int reuse = 0;
    NEED(cu.cuMemPoolGetAttribute(pool, CU_MEMPOOL_ATTR_RELEASE_THRESHOLD, &threshold));
    fact(threshold == ~uint64_t(0), "the threshold is what was set");
    for (const CUmemPool_attribute attribute :
         {CU_MEMPOOL_ATTR_REUSE_FOLLOW_EVENT_DEPENDENCIES,
          CU_MEMPOOL_ATTR_REUSE_ALLOW_OPPORTUNISTIC,
          CU_MEMPOOL_ATTR_REUSE_ALLOW_INTERNAL_DEPENDENCIES}) {
        NEED(cu.cuMemPoolGetAttribute(pool, attribute, &reuse));
        fact(reuse == 1, "a way of reuse is allowed");
    }
    fact(used(pool) == 0 && reserved(pool) == 0, "it has nothing at first");
    fact(figure(pool, CU_MEMPOOL_ATTR_USED_MEM_HIGH) == 0, "and never had");
}

void counts_alone(CUmemoryPool pool, CUstream stream) {
    CUmemoryPool common = nullptr;
    NEED(cu.cuDeviceGetDefaultMemPool(&common, 0));
    const uint64_t used_before = used(common);
    const CUdeviceptr memory = allocate_from(pool, 64 * mib, stream);
    NEED(fill(memory, 64 * mib, 71, stream));
    fact(holds(memory, 64 * mib, 71, stream), "bytes ok");
    fact(pool_of(memory + 5) == pool, "memory says whose it is");
    fact(used(pool) == 64 * mib, "64 MiB are used");
    fact(reserved(pool) >= 64 * mib, "and reserved");
    fact(used(common) == used_before, "the default pool has nothing of it");
    free_and_wait(memory, stream);
    fact(used(pool) == 0, "nothing is used after the free");
    fact(reserved(pool) >= 64 * mib, "what is freed is kept");
    fact(figure(pool, CU_MEMPOOL_ATTR_USED_MEM_HIGH) == 64 * mib, "64 MiB were used at most");
    set(pool, CU_MEMPOOL_ATTR_USED_MEM_HIGH, 0);
    fact(figure(pool, CU_MEMPOOL_ATTR_USED_MEM_HIGH) == 0, "and nothing since a reset of that");
    const uint64_t kept = reserved(pool);
    free_and_wait(allocate_from(pool, 64 * mib, stream), stream);
    fact(reserved(pool) == kept, "as much is had again from what is kept");
    result(cu.cuMemPoolTrimTo(pool, 0), CUDA_SUCCESS, "trim to nothing");
    fact(reserved(pool) == 0, "nothing is reserved then");
}

void serves_two_contexts(CUmemoryPool pool, CUstream stream) {
    const CUdeviceptr first = allocate_from(pool, 64 * mib, stream);
    const Second context(0);
    const Stream other;
    const CUdeviceptr second = allocate_from(pool, 64 * mib, other);
    fact(used(pool) == 128 * mib, "memory of two contexts is used");
    NEED(cu.cuStreamSynchronize(stream));
    result(cu.cuMemFreeAsync(first, other), CUDA_SUCCESS, "free on a stream of the other context");
    free_and_wait(second, other);
    fact(used(pool) == 0, "nothing is used after the frees");
    result(cu.cuMemPoolTrimTo(pool, 32 * mib), CUDA_SUCCESS, "trim to 32 MiB");
    fact(reserved(pool) <= 32 * mib, "no more is reserved then");
}

void frees_every_way(CUmemoryPool pool, CUstream stream) {
    const Stream other;
    const CUdeviceptr first = allocate_from(pool, mib, stream);
    NEED(fill(first, mib, 72, stream));
    order(stream, other);
    fact(holds(first, mib, 72, other), "another stream that waits sees the bytes");
    result(cu.cuMemFreeAsync(first, other), CUDA_SUCCESS, "free on another stream");
    const CUdeviceptr second = allocate_from(pool, mib, stream);
    NEED(cu.cuStreamSynchronize(stream));
    result(cu.cuMemFree(second), CUDA_SUCCESS, "free without a stream");
    const CUdeviceptr third = allocate_from(pool, mib, CU_STREAM_PER_THREAD);
    result(cu.cuMemFreeAsync(third, CU_STREAM_PER_THREAD), CUDA_SUCCESS, "the thread's stream");
    const CUdeviceptr fourth = allocate_from(pool, mib, nullptr);
    result(cu.cuMemFreeAsync(fourth, nullptr), CUDA_SUCCESS, "stream 0");
    CUdeviceptr none = 0;
    result(cu.cuMemAllocFromPoolAsync(&none, size_t(1) << 50, pool, stream),
           CUDA_ERROR_OUT_OF_MEMORY, "1 PiB");
    NEED(cu.cuCtxSynchronize());
}

void is_not_shared(CUmemoryPool pool, CUstream stream) {
    int descriptor = -1;
    CUmemPoolPtrExportData data = {};
    CUipcMemHandle handle = {};
    const CUdeviceptr memory = allocate_from(pool, mib, stream);
    fact(cu.cuMemPoolExportToShareableHandle(
             &descriptor, pool, CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR, 0) != CUDA_SUCCESS,
         "a pool without types of handles is not exported");
    fact(cu.cuMemPoolExportPointer(&data, memory) != CUDA_SUCCESS, "nor is its memory");
    result(cu.cuIpcGetMemHandle(&handle, memory), CUDA_ERROR_INVALID_VALUE, "nor by cuIpc");
    free_and_wait(memory, stream);
}

// Allocations on a stream that captures, and in a node.
void serves_graphs(CUmemoryPool pool, CUstream stream) {
    CUgraph graph = nullptr;
    CUgraphExec executable = nullptr;
    NEED(cu.cuStreamBeginCapture(stream, CU_STREAM_CAPTURE_MODE_GLOBAL));
    const CUdeviceptr memory = allocate_from(pool, mib, stream);
    NEED(fill(memory, mib, 73, stream));
    NEED(cu.cuMemFreeAsync(memory, stream));
    NEED(cu.cuStreamEndCapture(stream, &graph));
    NEED(cu.cuGraphInstantiateWithFlags(&executable, graph, 0));
    result(cu.cuGraphLaunch(executable, stream), CUDA_SUCCESS, "a graph that allocates from it");
    NEED(cu.cuStreamSynchronize(stream));
    NEED(cu.cuGraphExecDestroy(executable));
    NEED(cu.cuGraphDestroy(graph));
}

// The pool's memory may be used while settings change, and goes back.
void changes_its_mind(CUmemoryPool pool, CUstream stream) {
    int off = 0, on = 1;
    const uint64_t before = used(pool); // a driver counts what graphs allocated from it
    const CUdeviceptr memory = allocate_from(pool, 64 * mib, stream);
    NEED(fill(memory, 64 * mib, 74, stream));
    set(pool, CU_MEMPOOL_ATTR_RELEASE_THRESHOLD, 0);
    const CUdeviceptr other = allocate_from(pool, 64 * mib, stream);
    fact(pool_of(memory) == pool && pool_of(other) == pool,
         "without a threshold: both are its own");
    fact(used(pool) - before == 128 * mib, "without a threshold: both are counted");
    fact(holds(memory, 64 * mib, 74, stream), "without a threshold: bytes ok");
    NEED(cu.cuMemFreeAsync(memory, stream));
    free_and_wait(other, stream);
    fact(used(pool) == before, "without a threshold: nothing is used in the end");
    fact(reserved(pool) == 0, "without a threshold: nothing is kept");
    set(pool, CU_MEMPOOL_ATTR_RELEASE_THRESHOLD, ~uint64_t(0));
    NEED(cu.cuMemPoolSetAttribute(pool, CU_MEMPOOL_ATTR_REUSE_ALLOW_OPPORTUNISTIC, &off));
    free_and_wait(allocate_from(pool, mib, stream), stream);
    NEED(cu.cuMemPoolSetAttribute(pool, CU_MEMPOOL_ATTR_REUSE_ALLOW_OPPORTUNISTIC, &on));
    free_and_wait(allocate_from(pool, mib, stream), stream);
    fact(used(pool) == before, "with other settings: nothing is used in the end");
}

// Trims a pool with two parts: the first may be the driver's, and the second a plugin's.
void is_trimmed_in_both_parts(CUstream stream) {
    const CUmemoryPool pool = make_keeping_pool();
    set(pool, CU_MEMPOOL_ATTR_RELEASE_THRESHOLD, 0);
    const CUdeviceptr first = allocate_from(pool, 64 * mib, stream);
    set(pool, CU_MEMPOOL_ATTR_RELEASE_THRESHOLD, ~uint64_t(0));
    const CUdeviceptr second = allocate_from(pool, 64 * mib, stream);
    free_and_wait(second, stream);
    result(cu.cuMemPoolTrimTo(pool, 64 * mib), CUDA_SUCCESS, "trim to what is in use");
    fact(reserved(pool) <= 64 * mib, "that alone is reserved then");
    free_and_wait(allocate_from(pool, 64 * mib, stream), stream);
    free_and_wait(first, stream);
    result(cu.cuMemPoolTrimTo(pool, 64 * mib), CUDA_SUCCESS, "trim to half of what is kept");
    fact(reserved(pool) <= 64 * mib, "no more is reserved then");
    NEED(cu.cuMemPoolDestroy(pool));
}

void outlived_by_its_memory(CUstream stream) {
    const CUmemoryPool pool = make_keeping_pool();
    free_and_wait(allocate_from(pool, mib, stream), stream);
    const uint64_t before = free_memory();
    const CUdeviceptr memory = allocate_from(pool, 256 * mib, stream);
    NEED(fill(memory, 256 * mib, 75, stream));
    result(cu.cuMemPoolDestroy(pool), CUDA_SUCCESS, "the end of a pool with memory in use");
    const CUmemoryPool next = make_keeping_pool();
    const CUdeviceptr later = allocate_from(next, mib, stream);
    NEED(fill(later, mib, 76, stream));
    fact(pool_of(later) == next, "the next pool's memory is its own");
    fact(used(next) == mib, "and all that is in use there");
    fact(holds(memory, 256 * mib, 75, stream), "memory of an ended pool: bytes ok");
    free_and_wait(memory, stream);
    fact(free_memory() + 64 * mib > before, "memory of an ended pool is free after its free");
    fact(holds(later, mib, 76, stream), "memory of the next pool: bytes ok");
    free_and_wait(later, stream);
    NEED(cu.cuMemPoolDestroy(next));
}

// Frees also under work: the memory goes back once the work is done.
void come_and_go(CUstream stream) {
    constexpr int rounds = 50;
    const uint64_t before = free_memory();
    int right = 0;
    for (int round = 0; round < rounds; ++round) {
        const CUmemoryPool pool = make_keeping_pool();
        const CUdeviceptr memory = allocate_from(pool, 8 * mib, stream);
        NEED(fill(memory, 8 * mib, unsigned(round), stream));
        right += used(pool) == 8 * mib && figure(pool, CU_MEMPOOL_ATTR_USED_MEM_HIGH) == 8 * mib;
        NEED(cu.cuMemFreeAsync(memory, stream));
        NEED(cu.cuMemPoolDestroy(pool));
    }
    fact(right == rounds, "%d pools: each has its own figures", rounds);
    NEED(cu.cuStreamSynchronize(stream));
    fact(free_memory() + 64 * mib > before, "and their memory is free again");
}

} // namespace

void own_pools_case() {
    const Primary primary;
    const Stream stream;
    const CUmemoryPool pool = make_keeping_pool();
    is_as_asked_for(pool);
    counts_alone(pool, stream);
    serves_two_contexts(pool, stream);
    NEED(cu.cuCtxSetCurrent(primary.context));
    frees_every_way(pool, stream);
    is_not_shared(pool, stream);
    serves_graphs(pool, stream);
    changes_its_mind(pool, stream);
    result(cu.cuMemPoolDestroy(pool), CUDA_SUCCESS, "its end");
    is_trimmed_in_both_parts(stream);
    outlived_by_its_memory(stream);
    come_and_go(stream);
}

// Any thread's next call gives back the memory that ended pools have left: here a thread without
// their context.
void ended_pools_case() {
    const Primary primary;
    const uint64_t before = free_memory();
    std::atomic<bool> is_over{false};
    std::thread other([&] {
        NEED(cu.cuCtxSetCurrent(primary.context));
        while (!is_over) {
            free_memory();
        }
    });
    for (int round = 0; round < 50; ++round) {
        const Second context(0);
        const Stream stream;
        const CUmemoryPool pool = make_keeping_pool();
        const CUdeviceptr memory = allocate_from(pool, mib, stream);
        NEED(fill(memory, mib, unsigned(round), stream));
        NEED(cu.cuMemFreeAsync(memory, stream));
        NEED(cu.cuMemPoolDestroy(pool));
    }
    is_over = true;
    other.join();
    fact(true, "contexts end while another thread asks for free memory");
    fact(free_memory() + 64 * mib > before, "and their memory is free again");
}

#include "cases.h"
#include "objects.h"

#include <algorithm>
#include <cstring>
#include <vector>

namespace {

struct Block {
    size_t size;
    CUdeviceptr address;
};

bool overlap(const Block &a, const Block &b) {
    return a.address < b.address + b.size && b.address < a.address + a.size;
}

bool are_apart(std::vector<Block> blocks) {
    std::sort(blocks.begin(), blocks.end(),
              [](const Block &a, const Block &b) { return a.address < b.address; });
    return std::adjacent_find(blocks.begin(), blocks.end(), overlap) == blocks.end();
}

void refusals() {
    CUdeviceptr address = 7;
    CUcontext popped = nullptr;
    result(cu.cuMemAlloc(&address, 0), CUDA_ERROR_INVALID_VALUE, "0 bytes");
    result(cu.cuMemAlloc(&address, size_t(1) << 50), CUDA_ERROR_OUT_OF_MEMORY, "1 PiB");
    result(cu.cuMemAlloc(nullptr, 4096), CUDA_ERROR_INVALID_VALUE, "nowhere to put the address");
    result(cu.cuMemFree(0), CUDA_SUCCESS, "free of 0");
    const CUdeviceptr block = allocate(4096);
    NEED(cu.cuCtxPopCurrent(&popped));
    result(cu.cuMemAlloc(&address, 4096), CUDA_ERROR_INVALID_CONTEXT, "no current context");
    result(cu.cuMemFree(block), CUDA_SUCCESS, "free with no current context");
    NEED(cu.cuCtxPushCurrent(popped));
}

} // namespace

void alloc_case() {
    const Primary primary;
    const Stream stream;
    std::vector<Block> blocks;
    for (const size_t size : {size_t(1), size_t(100), size_t(256), size_t(4096), size_t(65536), mib,
                              2 * mib, 2 * mib + 4, 10 * mib, 64 * mib}) {
        blocks.push_back({size, allocate(size)});
        NEED(fill(blocks.back().address, size, static_cast<unsigned>(size * 3 + 1), stream));
    }
    fact(are_apart(blocks), "no two blocks overlap");
    for (const Block &block : blocks) {
        fact(block.address % 256 == 0, "%zu bytes: aligned", block.size);
        fact(holds(block.address, block.size, static_cast<unsigned>(block.size * 3 + 1), stream),
             "%zu bytes: bytes ok", block.size);
        result(cu.cuMemFree(block.address), CUDA_SUCCESS, "%zu bytes: free", block.size);
    }
    refusals();
}

// Memory that is freed while work uses it belongs to its next owner only after that work.
void reuse_case() {
    constexpr int rounds = 200;
    const Primary primary;
    const Stream one, other;
    int right = 0;
    for (int round = 0; round < rounds; ++round) {
        const CUdeviceptr first = allocate(mib);
        NEED(fill(first, mib, 0xAAAAAAAA, one));
        NEED(cu.cuMemFree(first));
        const CUdeviceptr second = allocate(mib);
        NEED(fill(second, mib, 0x55555555, other));
        right += holds(second, mib, 0x55555555, other);
        NEED(cu.cuMemFree(second));
    }
    fact(right == rounds, "%d blocks that were freed under work and had again: bytes ok", rounds);
    int had = 0;
    for (int i = 0; i < 1000; ++i) {
        CUdeviceptr address = 0;
        had += cu.cuMemAlloc(&address, 64 * mib) == CUDA_SUCCESS &&
               cu.cuMemFree(address) == CUDA_SUCCESS;
    }
    fact(had == 1000, "1000 blocks of 64 MiB, one after the other");
}

// So many that memory which was freed comes again.
static void zeroed_pinned_memory() {
    constexpr int rounds = 40;
    int zeroed = 0;
    for (int round = 0; round < rounds; ++round) {
        void *host = nullptr;
        NEED(cu.cuMemHostAlloc(&host, mib, 0));
        const auto *const bytes = static_cast<const char *>(host);
        zeroed += std::all_of(bytes, bytes + mib, [](char byte) { return byte == 0; });
        std::memset(host, 0xAA, mib);
        NEED(cu.cuMemFreeHost(host));
        NEED(cu.cuCtxSynchronize());
    }
    fact(zeroed == rounds, "%d blocks of cuMemHostAlloc: zero", rounds);
}

// EMM_RUN=zero promises, as no driver does, that the bytes of the memory's former owner are gone.
void zeroed_case() {
    const Primary primary;
    const Stream stream;
    for (const size_t size : {size_t(4096), mib, 64 * mib}) {
        CUdeviceptr block = allocate(size);
        NEED(fill(block, size, 0xAAAAAAAA, stream));
        NEED(cu.cuMemFree(block));
        block = allocate(size);
        fact(holds(block, size, 0, stream), "%zu bytes of cuMemAlloc: zero", size);
        NEED(cu.cuMemFree(block));
        block = allocate_async(size, stream);
        NEED(fill(block, size, 0xAAAAAAAA, stream));
        NEED(cu.cuMemFreeAsync(block, stream));
        block = allocate_async(size, stream);
        fact(holds(block, size, 0, stream), "%zu bytes of cuMemAllocAsync: zero", size);
        NEED(cu.cuMemFreeAsync(block, stream));
    }
    zeroed_pinned_memory();
}

// Memory that a launch has left is freed once, and once more after the next launch.
static void freed_twice_of_a_graph(CUstream stream) {
    CUgraph graph = nullptr;
    CUgraphExec executable = nullptr;
    NEED(cu.cuStreamBeginCapture(stream, CU_STREAM_CAPTURE_MODE_GLOBAL));
    const CUdeviceptr address = allocate_async(mib, stream);
    NEED(cu.cuStreamEndCapture(stream, &graph));
    NEED(cu.cuGraphInstantiateWithFlags(&executable, graph, 0));
    NEED(cu.cuGraphDestroy(graph));
    result(cu.cuMemFreeAsync(address, stream), CUDA_ERROR_INVALID_VALUE,
           "free of a graph's memory before the first launch");
    for (const char *which : {"first", "second"}) {
        NEED(cu.cuGraphLaunch(executable, stream));
        result(cu.cuMemFreeAsync(address, stream), CUDA_SUCCESS,
               "free of a graph's memory, %s launch", which);
        result(cu.cuMemFreeAsync(address, stream), CUDA_ERROR_INVALID_VALUE,
               "the second free, %s launch", which);
        result(cu.cuMemFree(address), CUDA_ERROR_INVALID_VALUE, "the third free, %s launch", which);
    }
    NEED(cu.cuGraphExecDestroy(executable));
    result(cu.cuMemFreeAsync(address, stream), CUDA_ERROR_INVALID_VALUE,
           "the free after the graph's end");
}

// Undefined behaviour in theory; the driver answers with an error all the same.
void wrong_frees_case() {
    const Primary primary;
    const Stream stream;
    const CUdeviceptr block = allocate(mib), twice = allocate(mib);
    int on_stack = 0;
    const auto nowhere = reinterpret_cast<CUdeviceptr>(&on_stack);
    result(cu.cuMemFree(block + 256), CUDA_ERROR_INVALID_VALUE, "free inside a block");
    NEED(fill(block, mib, 77, stream));
    fact(holds(block, mib, 77, stream), "the block is still whole");
    result(cu.cuMemFree(twice), CUDA_SUCCESS, "free");
    result(cu.cuMemFree(twice), CUDA_ERROR_INVALID_VALUE, "free, the second time");
    result(cu.cuMemFree(nowhere), CUDA_ERROR_INVALID_VALUE, "free of an address on the stack");
    result(cu.cuMemFreeHost(&on_stack), CUDA_ERROR_INVALID_VALUE, "host free on the stack");
    result(cu.cuMemFreeHost(reinterpret_cast<void *>(block)), CUDA_ERROR_INVALID_VALUE,
           "host free of device memory");
    void *host = nullptr;
    NEED(cu.cuMemHostAlloc(&host, 8192, 0));
    result(cu.cuMemFreeHost(static_cast<char *>(host) + 4096), CUDA_ERROR_INVALID_VALUE,
           "host free inside a block");
    result(cu.cuMemFree(reinterpret_cast<CUdeviceptr>(host)), CUDA_ERROR_INVALID_VALUE,
           "device free of host memory");
    result(cu.cuMemFreeHost(host), CUDA_SUCCESS, "host free");
    result(cu.cuMemFreeHost(host), CUDA_ERROR_INVALID_VALUE, "host free, the second time");
    const CUdeviceptr async = allocate_async(mib, stream);
    result(cu.cuMemFreeAsync(async, stream), CUDA_SUCCESS, "free on a stream");
    result(cu.cuMemFreeAsync(async, stream), CUDA_ERROR_INVALID_VALUE,
           "free on a stream, the second time");
    freed_twice_of_a_graph(stream);
    result(cu.cuMemFree(block), CUDA_SUCCESS, "free of what was left");
}

void pitch_case() {
    const Primary primary;
    const Stream stream;
    const struct {
        size_t width, height;
        unsigned element;
    } shapes[] = {{1, 1, 4}, {1000, 7, 4}, {4096, 16, 16}, {513, 3, 8}, {70000, 100, 8}};
    for (const auto &[width, height, element] : shapes) {
        CUdeviceptr address = 0;
        size_t pitch = 0, size = 0;
        NEED(cu.cuMemAllocPitch(&address, &pitch, width, height, element));
        bool right = true;
        for (size_t row = 0; row < height; ++row) {
            NEED(fill(address + row * pitch, width, static_cast<unsigned>(row + 1), stream));
        }
        for (size_t row = 0; row < height; ++row) {
            right &= holds(address + row * pitch, width, static_cast<unsigned>(row + 1), stream);
        }
        NEED(cu.cuMemGetAddressRange(nullptr, &size, address));
        fact(pitch >= width && pitch % 32 == 0 && pitch % element == 0, "%zu x %zu: pitch ok",
             width, height);
        fact(size >= pitch * height, "%zu x %zu: all rows are in the block", width, height);
        fact(right, "%zu x %zu: bytes ok", width, height);
        result(cu.cuMemFree(address), CUDA_SUCCESS, "%zu x %zu: free", width, height);
    }
    CUdeviceptr address = 0;
    size_t pitch = 0;
    result(cu.cuMemAllocPitch(&address, &pitch, 1000, 7, 5), CUDA_ERROR_INVALID_VALUE,
           "elements of 5 bytes");
    result(cu.cuMemAllocPitch(&address, nullptr, 1000, 7, 4), CUDA_ERROR_INVALID_VALUE,
           "nowhere to put the pitch");
    result(cu.cuMemAllocPitch(nullptr, &pitch, 1000, 7, 4), CUDA_ERROR_INVALID_VALUE,
           "nowhere to put the address");
    result(cu.cuMemAllocPitch(&address, &pitch, 0, 7, 4), CUDA_ERROR_INVALID_VALUE,
           "rows of 0 bytes");
}

namespace {

unsigned long long id_at(CUdeviceptr address) {
    unsigned long long id = 0;
    NEED(cu.cuPointerGetAttribute(&id, CU_POINTER_ATTRIBUTE_BUFFER_ID, address));
    return id;
}

void managed(unsigned flags, const char *name) {
    constexpr size_t size = 3 * mib;
    const Stream stream;
    CUdeviceptr address = 0;
    NEED(cu.cuMemAllocManaged(&address, size, flags));
    auto *words = reinterpret_cast<unsigned *>(address);
    unsigned is_managed = 0;
    NEED(fill(address, size, 11, stream));
    NEED(cu.cuStreamSynchronize(stream));
    fact(words[0] == 11 && words[size / 4 - 1] == 11, "%s: the host reads what the device wrote",
         name);
    std::fill(words, words + size / 4, 12);
    fact(holds(address, size, 12, stream), "%s: the device reads what the host wrote", name);
    NEED(cu.cuPointerGetAttribute(&is_managed, CU_POINTER_ATTRIBUTE_IS_MANAGED, address + 5));
    fact(is_managed == 1, "%s: says that it is managed", name);
    unsigned host_flags = 0;
    NEED(cu.cuMemHostGetFlags(&host_flags, words));
    fact(host_flags == CU_MEMHOSTALLOC_DEVICEMAP, "%s: as host memory it is mapped", name);
    fact(id_at(address + size - 1) == id_at(address), "%s: its last byte has its id", name);
    result(cu.cuMemFree(address), CUDA_SUCCESS, "%s: free", name);
}

} // namespace

void managed_case() {
    const Primary primary;
    CUdeviceptr address = 0;
    managed(CU_MEM_ATTACH_GLOBAL, "global");
    managed(CU_MEM_ATTACH_HOST, "host");
    result(cu.cuMemAllocManaged(&address, 0, CU_MEM_ATTACH_GLOBAL), CUDA_ERROR_INVALID_VALUE,
           "0 bytes");
    result(cu.cuMemAllocManaged(&address, 4096, 0), CUDA_ERROR_INVALID_VALUE, "no flag");
}

void info_case() {
    const Primary primary;
    CUcontext popped = nullptr;
    size_t free = 0, total = 0, of_device = 0;
    NEED(cu.cuMemGetInfo(&free, &total));
    result(cu.cuMemGetInfo(nullptr, nullptr), CUDA_SUCCESS, "neither figure is asked for");
    result(cu.cuDeviceTotalMem(nullptr, 0), CUDA_ERROR_INVALID_VALUE, "nowhere to put the total");
    result(cu.cuDeviceTotalMem(&of_device, 0), CUDA_SUCCESS, "the device's memory");
    fact(of_device == total, "the device and the context agree");
    fact(free > 0 && free <= total, "some of it is free");
    const uint64_t before = free_memory();
    const CUdeviceptr block = allocate(256 * mib);
    const uint64_t during = free_memory();
    fact(during + 256 * mib <= before, "256 MiB: free memory fell by at least as much");
    NEED(cu.cuMemFree(block));
    fact(free_memory() >= during + 256 * mib, "256 MiB freed: it rose by at least as much");
    NEED(cu.cuCtxPopCurrent(&popped));
    result(cu.cuMemGetInfo(&free, &total), CUDA_ERROR_INVALID_CONTEXT, "no current context");
    NEED(cu.cuCtxPushCurrent(popped));
}

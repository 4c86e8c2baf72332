#include "cases.h"
#include "objects.h"

#include <algorithm>
#include <fcntl.h>
#include <iterator>
#include <sys/mman.h>
#include <unistd.h>
#include <vector>

namespace {

// The same answers at the first byte, in the middle and at the last one, and others beyond.
void range_of(CUdeviceptr address, size_t size, const char *name) {
    for (const size_t offset : {size_t(0), size / 2, size - 1}) {
        CUdeviceptr base = 0;
        size_t found = 0;
        result(cu.cuMemGetAddressRange(&base, &found, address + offset), CUDA_SUCCESS,
               "%s, %zu bytes: range at %zu", name, size, offset);
        fact(base == address && found == size, "%s, %zu bytes: the block itself", name, size);
    }
    CUdeviceptr base = 0;
    result(cu.cuMemGetAddressRange(&base, nullptr, address), CUDA_SUCCESS,
           "%s, %zu bytes: the start alone", name, size);
    const CUresult beyond = cu.cuMemGetAddressRange(&base, nullptr, address + size);
    fact(beyond == CUDA_ERROR_NOT_FOUND || base != address, "%s, %zu bytes: ends at its end", name,
         size);
}

} // namespace

void ranges_case() {
    const Primary primary;
    const Stream stream;
    CUdeviceptr base = 0;
    size_t found = 0;
    int on_stack = 0;
    for (const size_t size : {size_t(100), size_t(4096), mib, 3 * mib + 4096, 64 * mib}) {
        const CUdeviceptr before = allocate(size), address = allocate(size),
                          behind = allocate(size);
        range_of(address, size, "cuMemAlloc");
        NEED(cu.cuMemFree(before));
        NEED(cu.cuMemFree(behind));
        range_of(address, size, "cuMemAlloc between free ones");
        NEED(cu.cuMemFree(address));
        fact(cu.cuMemGetAddressRange(&base, nullptr, address) == CUDA_ERROR_NOT_FOUND,
             "%zu bytes: unknown once it is free", size);
        const CUdeviceptr async = allocate_async(size, stream);
        range_of(async, size, "cuMemAllocAsync");
        NEED(cu.cuMemFreeAsync(async, stream));
    }
    result(cu.cuMemGetAddressRange(&base, &found, reinterpret_cast<CUdeviceptr>(&on_stack)),
           CUDA_ERROR_NOT_FOUND, "an address on the stack");
    const CUdeviceptr freed = allocate(mib);
    NEED(cu.cuMemFree(freed));
    for (const CUdeviceptr address : {freed, reinterpret_cast<CUdeviceptr>(&on_stack)}) {
        result(cu.cuMemGetAddressRange(nullptr, nullptr, address), CUDA_SUCCESS,
               "neither start nor size is asked for");
    }
}

namespace {

constexpr size_t where_blocks_were = 4 * mib; // bytes of the memory in their place

// The addresses where freed blocks began. Their context ends, so that all memory is the driver's
// again.
std::vector<CUdeviceptr> freed_blocks(CUresult (*allocates)(CUdeviceptr *, size_t),
                                      CUresult (*frees)(CUdeviceptr)) {
    constexpr size_t count = 512, size = mib / 16;
    const Primary primary;
    std::vector<CUdeviceptr> blocks(count);
    for (CUdeviceptr &block : blocks) {
        NEED(allocates(&block, size));
    }
    for (const CUdeviceptr block : blocks) {
        NEED(frees(block));
    }
    return blocks;
}

CUresult allocate_plain(CUdeviceptr *ret_block, size_t size) {
    return cu.cuMemAlloc(ret_block, size);
}

CUresult allocate_pinned(CUdeviceptr *ret_block, size_t size) {
    void *host = nullptr;
    const CUresult result = cu.cuMemHostAlloc(&host, size, 0);
    *ret_block = reinterpret_cast<CUdeviceptr>(host);
    return result;
}

CUresult free_pinned(CUdeviceptr block) {
    return cu.cuMemFreeHost(reinterpret_cast<void *>(block));
}

CUresult free_plain(CUdeviceptr block) {
    return cu.cuMemFree(block);
}

CUresult allocate_managed(CUdeviceptr *ret_block, size_t size) {
    return cu.cuMemAllocManaged(ret_block, size, CU_MEM_ATTACH_GLOBAL);
}

// CUDA's answer at the last byte, where no block began, holds also at each address where a freed
// block began.
void stands_alone(CUdeviceptr block, const std::vector<CUdeviceptr> &freed, const char *name) {
    CUdeviceptr whole = 0;
    const CUresult at_last =
        cu.cuMemGetAddressRange(&whole, nullptr, block + where_blocks_were - 1);
    size_t within = 0, right = 0;
    for (const CUdeviceptr old : freed) {
        CUdeviceptr base = 0;
        if (old >= block && old - block < where_blocks_were) {
            within++;
            right += cu.cuMemGetAddressRange(&base, nullptr, old) == at_last && base == whole;
        }
    }
    fact(right == within, "%s: one range, also where freed blocks began", name);
}

void pool_where_blocks_were(const std::vector<CUdeviceptr> &freed) {
    const Primary primary;
    const Stream stream;
    CUmemPoolProps properties = {};
    CUmemoryPool pool = nullptr;
    CUdeviceptr block = 0;
    properties.allocType = CU_MEM_ALLOCATION_TYPE_PINNED;
    properties.location.type = CU_MEM_LOCATION_TYPE_DEVICE;
    NEED(cu.cuMemPoolCreate(&pool, &properties));
    NEED(cu.cuMemAllocFromPoolAsync(&block, where_blocks_were, pool, stream));
    stands_alone(block, freed, "a block of another pool");
    result(cu.cuMemFreeAsync(block, stream), CUDA_SUCCESS, "its free");
    NEED(cu.cuStreamSynchronize(stream));
    NEED(cu.cuMemPoolDestroy(pool));
}

void managed_where_blocks_were(const std::vector<CUdeviceptr> &freed) {
    const Primary primary;
    CUdeviceptr block = 0;
    NEED(allocate_managed(&block, where_blocks_were));
    stands_alone(block, freed, "managed memory");
    result(cu.cuMemFree(block), CUDA_SUCCESS, "its free");
}

// Registers the program's own pages at the address of the lowest block, if the pages are free.
void registered_where_blocks_were(const std::vector<CUdeviceptr> &freed) {
    const Primary primary;
    const CUdeviceptr lowest = *std::min_element(freed.begin(), freed.end());
    void *const pages =
        mmap(reinterpret_cast<void *>(lowest / page * page - page), where_blocks_were,
             PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    NEED(pages == MAP_FAILED ? CUDA_ERROR_OUT_OF_MEMORY : CUDA_SUCCESS);
    NEED(cu.cuMemHostRegister(pages, where_blocks_were, 0));
    stands_alone(reinterpret_cast<CUdeviceptr>(pages), freed, "registered memory");
    result(cu.cuMemHostUnregister(pages), CUDA_SUCCESS, "its end");
    munmap(pages, where_blocks_were);
}

// Maps as many addresses as a plugin reserves, so that they may be the same.
void mapped_where_blocks_were(const std::vector<CUdeviceptr> &freed) {
    const Primary primary;
    constexpr size_t size = where_blocks_were, reserved = 4096 * mib;
    CUmemAllocationProp properties = {};
    CUmemGenericAllocationHandle handle = 0;
    CUdeviceptr range = 0;
    properties.type = CU_MEM_ALLOCATION_TYPE_PINNED;
    properties.location.type = CU_MEM_LOCATION_TYPE_DEVICE;
    NEED(cu.cuMemCreate(&handle, size, &properties, 0));
    NEED(cu.cuMemAddressReserve(&range, reserved, 0, 0, 0));
    const bool has_been_there = freed[0] >= range && freed[0] - range < reserved - size;
    const CUdeviceptr mapped = has_been_there ? freed[0] / (2 * mib) * (2 * mib) : range;
    NEED(cu.cuMemMap(mapped, size, 0, handle, 0));
    stands_alone(mapped, freed, "a mapping");
    NEED(cu.cuMemUnmap(mapped, size));
    NEED(cu.cuMemAddressFree(range, reserved));
    NEED(cu.cuMemRelease(handle));
}

void node_where_blocks_were(const std::vector<CUdeviceptr> &freed) {
    const Primary primary;
    const Stream stream;
    CUgraph graph = nullptr;
    CUgraphExec executable = nullptr;
    CUgraphNode node = nullptr;
    CUDA_MEM_ALLOC_NODE_PARAMS params = {};
    params.poolProps.allocType = CU_MEM_ALLOCATION_TYPE_PINNED;
    params.poolProps.location.type = CU_MEM_LOCATION_TYPE_DEVICE;
    params.bytesize = where_blocks_were;
    NEED(cu.cuGraphCreate(&graph, 0));
    NEED(cu.cuGraphAddMemAllocNode(&node, graph, nullptr, 0, &params));
    NEED(cu.cuGraphInstantiateWithFlags(&executable, graph, 0));
    NEED(cu.cuGraphLaunch(executable, stream));
    stands_alone(params.dptr, freed, "memory of a graph's node");
    result(cu.cuMemFreeAsync(params.dptr, stream), CUDA_SUCCESS, "its free");
    NEED(cu.cuStreamSynchronize(stream));
    NEED(cu.cuGraphExecDestroy(executable));
    NEED(cu.cuGraphDestroy(graph));
}

} // namespace

// Memory that the driver itself gives to the program, or that the program pins, where a plugin had
// memory before.
void after_frees_case() {
    pool_where_blocks_were(freed_blocks(&allocate_plain, &free_plain));
    managed_where_blocks_were(freed_blocks(&allocate_managed, &free_plain));
    registered_where_blocks_were(freed_blocks(&allocate_pinned, &free_pinned));
    mapped_where_blocks_were(freed_blocks(&allocate_plain, &free_plain));
    node_where_blocks_were(freed_blocks(&allocate_plain, &free_plain));
}

namespace {

template <typename Value>
Value attribute(CUpointer_attribute which, CUdeviceptr address, Value value) {
    return cu.cuPointerGetAttribute(&value, which, address) == CUDA_SUCCESS ? value : Value();
}

unsigned long long id_of(CUdeviceptr address) {
    return attribute(CU_POINTER_ATTRIBUTE_BUFFER_ID, address, 0ULL);
}

// 7: not written.
struct Answers {
    CUdeviceptr start = 7, device = 7, host = 7, context = 7;
    size_t size = 7;
    unsigned type = 7, is_managed = 7, mapped = 7;
    int ordinal = 7;
    unsigned long long id = 7;
    CUresult result;

    explicit Answers(CUdeviceptr address) {
        CUpointer_attribute which[] = {
            CU_POINTER_ATTRIBUTE_RANGE_START_ADDR, CU_POINTER_ATTRIBUTE_DEVICE_POINTER,
            CU_POINTER_ATTRIBUTE_RANGE_SIZE,       CU_POINTER_ATTRIBUTE_MEMORY_TYPE,
            CU_POINTER_ATTRIBUTE_IS_MANAGED,       CU_POINTER_ATTRIBUTE_MAPPED,
            CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL,   CU_POINTER_ATTRIBUTE_CONTEXT,
            CU_POINTER_ATTRIBUTE_BUFFER_ID,        CU_POINTER_ATTRIBUTE_HOST_POINTER};
        void *where[] = {&start,  &device,  &size,    &type, &is_managed,
                         &mapped, &ordinal, &context, &id,   &host};
        result = cu.cuPointerGetAttributes(std::size(which), which, where, address);
    }
};

void one_by_one(CUdeviceptr block, size_t size, CUdeviceptr at, CUcontext context) {
    fact(attribute(CU_POINTER_ATTRIBUTE_RANGE_START_ADDR, at, block + 1) == block, "its start");
    fact(attribute(CU_POINTER_ATTRIBUTE_RANGE_SIZE, at, size_t(0)) == size, "its size");
    fact(attribute(CU_POINTER_ATTRIBUTE_DEVICE_POINTER, at, CUdeviceptr(0)) == at,
         "the address itself");
    fact(attribute(CU_POINTER_ATTRIBUTE_MEMORY_TYPE, at, 0U) == CU_MEMORYTYPE_DEVICE, "its type");
    int ordinal = 7;
    result(cu.cuPointerGetAttribute(&ordinal, CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL, at),
           CUDA_SUCCESS, "it is of a device");
    fact(ordinal == 0, "its device");
    fact(attribute(CU_POINTER_ATTRIBUTE_IS_MANAGED, at, 7U) == 0, "it is not managed");
    fact(attribute(CU_POINTER_ATTRIBUTE_MAPPED, at, 7U) == 1, "it is mapped");
    fact(attribute(CU_POINTER_ATTRIBUTE_CONTEXT, at, CUcontext()) == context, "its context");
    void *host = nullptr;
    result(cu.cuPointerGetAttribute(&host, CU_POINTER_ATTRIBUTE_HOST_POINTER, at),
           CUDA_ERROR_INVALID_VALUE, "its host address");
    CUmemoryPool pool = reinterpret_cast<CUmemoryPool>(&host);
    NEED(cu.cuPointerGetAttribute(&pool, CU_POINTER_ATTRIBUTE_MEMPOOL_HANDLE, at));
    fact(pool == nullptr, "it is of no pool");
    fact(attribute(CU_POINTER_ATTRIBUTE_ALLOWED_HANDLE_TYPES, at, 7ULL) == 0,
         "it allows no type of handle");
}

void all_at_once(CUdeviceptr block, size_t size, CUdeviceptr at, CUcontext context) {
    const Answers answers(at);
    result(answers.result, CUDA_SUCCESS, "all at once");
    fact(answers.start == block && answers.size == size, "the range");
    fact(answers.device == at && answers.host == 0, "the addresses");
    fact(answers.type == CU_MEMORYTYPE_DEVICE && answers.is_managed == 0 && answers.mapped == 1,
         "the type");
    fact(answers.ordinal == 0 && answers.context == reinterpret_cast<CUdeviceptr>(context),
         "the device and the context");
    fact(answers.id == id_of(block), "the id");
}

void unknown(CUdeviceptr address, const char *name) {
    unsigned type = 7;
    result(cu.cuPointerGetAttribute(&type, CU_POINTER_ATTRIBUTE_MEMORY_TYPE, address),
           CUDA_ERROR_INVALID_VALUE, "%s: one attribute", name);
    CUmemGenericAllocationHandle handle = 0;
    result(cu.cuMemRetainAllocationHandle(&handle, reinterpret_cast<void *>(address)),
           CUDA_ERROR_INVALID_VALUE, "%s: a handle", name);
    const Answers answers(address);
    result(answers.result, CUDA_SUCCESS, "%s: all at once", name);
    const auto tell = [&](const char *what, auto value) {
        told(value == 0                      ? "none"
             : value == 7                    ? "not written"
             : value + 1 == 0                ? "-1"
             : value + 2 == 0                ? "-2"
             : CUdeviceptr(value) == address ? "the address itself"
                                             : "some",
             "%s: %s", name, what);
    };
    tell("its start", answers.start);
    tell("its size", answers.size);
    tell("its address on the device", answers.device);
    tell("its address on the host", answers.host);
    tell("its type", answers.type);
    tell("its device", answers.ordinal);
    tell("its context", answers.context);
    tell("its id", answers.id);
    tell("managed", answers.is_managed);
    tell("mapped", answers.mapped);
}

void no_descriptor_of_freed(CUdeviceptr block) {
    int supported = 0, descriptor = -1;
    NEED(cu.cuDeviceGetAttribute(&supported, CU_DEVICE_ATTRIBUTE_DMA_BUF_SUPPORTED, 0));
    if (supported) {
        result(cu.cuMemGetHandleForAddressRange(&descriptor, block, 2 * mib,
                                                CU_MEM_RANGE_HANDLE_TYPE_DMA_BUF_FD, 0),
               CUDA_ERROR_INVALID_VALUE, "a block that was freed: a descriptor");
    }
}

void ids() {
    constexpr int rounds = 50;
    unsigned long long last = 0;
    int changes = 0;
    for (int round = 0; round < rounds; ++round) {
        const CUdeviceptr block = allocate(mib);
        const unsigned long long id = id_of(block);
        changes += id != 0 && id != last && id_of(block + mib - 1) == id;
        last = id;
        NEED(cu.cuMemFree(block));
    }
    fact(changes == rounds, "%d blocks, one after the other: each has an id of its own", rounds);
}

} // namespace

void attributes_case() {
    const Primary primary;
    constexpr size_t size = 3 * mib;
    const CUdeviceptr block = allocate(size), other = allocate(size);
    for (const size_t offset : {size_t(0), size / 2, size - 1}) {
        one_by_one(block, size, block + offset, primary.context);
        all_at_once(block, size, block + offset, primary.context);
    }
    fact(id_of(block) != id_of(other), "two blocks have two ids");
    CUpointer_attribute which[] = {CU_POINTER_ATTRIBUTE_RANGE_SIZE, CU_POINTER_ATTRIBUTE_CONTEXT};
    size_t told = 0;
    void *where[] = {&told, nullptr};
    result(cu.cuPointerGetAttributes(2, which, where, block), CUDA_ERROR_INVALID_VALUE,
           "two at once, and nowhere to put one");
    result(cu.cuPointerGetAttributes(0, which, where, block), CUDA_ERROR_INVALID_VALUE, "none");
    NEED(cu.cuMemFree(other));
    NEED(cu.cuMemFree(block));
    unknown(block, "a block that was freed");
    no_descriptor_of_freed(block);
    int on_stack = 0;
    unknown(reinterpret_cast<CUdeviceptr>(&on_stack), "an address on the stack");
    ids();
}

// Handles that the driver gives only for allocations that it has made in a certain way.
void handles_case() {
    const Primary primary;
    const CUdeviceptr block = allocate(2 * mib);
    CUmemGenericAllocationHandle handle = 0;
    int supported = 0, descriptor = -1;
    unsigned yes = 1;
    result(cu.cuMemRetainAllocationHandle(&handle, reinterpret_cast<void *>(block)),
           CUDA_ERROR_INVALID_VALUE, "a handle of cuMemAlloc's memory");
    result(cu.cuPointerSetAttribute(&yes, CU_POINTER_ATTRIBUTE_SYNC_MEMOPS, block), CUDA_SUCCESS,
           "operations that synchronize");
    fact(attribute(CU_POINTER_ATTRIBUTE_SYNC_MEMOPS, block, 7U) == 1, "and say so");
    NEED(cu.cuDeviceGetAttribute(&supported, CU_DEVICE_ATTRIBUTE_DMA_BUF_SUPPORTED, 0));
    if (supported) {
        result(cu.cuMemGetHandleForAddressRange(&descriptor, block, 2 * mib,
                                                CU_MEM_RANGE_HANDLE_TYPE_DMA_BUF_FD, 0),
               CUDA_SUCCESS, "a descriptor of the block");
        fact(fcntl(descriptor, F_GETFD) >= 0 && close(descriptor) == 0, "which is open");
    }
    NEED(cu.cuMemFree(block));
}

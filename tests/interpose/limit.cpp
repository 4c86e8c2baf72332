// A program that takes all that `emm run --limit 8GiB` lets it have of a device, kind by kind, in
// one context and in three: limit HOW. Under the bound nothing else is to be had then, and as much
// again once it is given back. limit HOW member is one of several programs that share the bound
// (shared_kinds_test.py): it takes what standard input tells it to.
#include "objects.h"

#include <cstdio>
#include <functional>
#include <memory>
#include <optional>
#include <simcuda.h>
#include <unistd.h>
#include <vector>

namespace {

constexpr size_t bound = 8192 * mib, piece = 16 * mib;

// NULL: another driver than the simulated one.
template <class Entry> Entry simcuda_entry(const char *name) {
    void *entry = nullptr;
    CUdriverProcAddressQueryResult found = {};
    return cu.cuGetProcAddress(name, &entry, 12000, 0, &found) == CUDA_SUCCESS
               ? reinterpret_cast<Entry>(entry)
               : nullptr;
}

// The bytes that the device has in use. The simulated driver tells them for this process; for a
// GPU, a process that emm does not serve asks.
uint64_t device_bytes() {
    using GetCounters = decltype(&simcuda_get_counters);
    if (const auto get = simcuda_entry<GetCounters>("simcuda_get_counters")) {
        simcuda_counters counters = {};
        counters.struct_size = sizeof counters;
        get(&counters);
        return counters.device_bytes;
    }
    const std::unique_ptr<FILE, int (*)(FILE *)> told(
        popen("env -u LD_PRELOAD -u LD_LIBRARY_PATH nvidia-smi --id=0 --query-gpu=memory.used"
              " --format=csv,noheader,nounits",
              "r"),
        pclose);
    unsigned long used_mib = 0;
    fact(told && fscanf(told.get(), "%lu", &used_mib) == 1, "nvidia-smi says what is in use");
    return used_mib * mib;
}

// The memory that a GPU's driver takes for a context itself is not counted, and the driver takes
// some of it late.
size_t uncounted_bytes(size_t contexts) {
    return simcuda_entry<void *>("simcuda_get_counters") ? 0 : contexts * 64 * mib;
}

size_t free_bytes() {
    size_t free = 0, total = 0;
    NEED(cu.cuMemGetInfo(&free, &total));
    return free;
}

CUmemLocation device_0() {
    CUmemLocation location = {};
    location.type = CU_MEM_LOCATION_TYPE_DEVICE;
    return location;
}

// Takes one piece, in the current context; `ret_free` gives it back there.
using Free = std::function<void()>;
using Take = CUresult (*)(CUmemoryPool pool, Free &ret_free);

CUresult take_block(CUmemoryPool, Free &ret_free) {
    CUdeviceptr ptr = 0;
    const CUresult result = cu.cuMemAlloc(&ptr, piece);
    ret_free = [ptr] { NEED(cu.cuMemFree(ptr)); };
    return result;
}

Free free_ordered(CUdeviceptr ptr) {
    return [ptr] {
        NEED(cu.cuMemFreeAsync(ptr, nullptr));
        NEED(cu.cuStreamSynchronize(nullptr));
    };
}

CUresult take_async(CUmemoryPool, Free &ret_free) {
    CUdeviceptr ptr = 0;
    const CUresult result = cu.cuMemAllocAsync(&ptr, piece, nullptr);
    ret_free = free_ordered(ptr);
    return result;
}

CUresult take_from_pool(CUmemoryPool pool, Free &ret_free) {
    CUdeviceptr ptr = 0;
    const CUresult result = cu.cuMemAllocFromPoolAsync(&ptr, piece, pool, nullptr);
    ret_free = free_ordered(ptr);
    return result;
}

CUmemAllocationProp on_device_0() {
    CUmemAllocationProp properties = {};
    properties.type = CU_MEM_ALLOCATION_TYPE_PINNED;
    properties.location = device_0();
    return properties;
}

CUresult take_physical(CUmemoryPool, Free &ret_free) {
    const CUmemAllocationProp properties = on_device_0();
    CUmemGenericAllocationHandle handle = 0;
    const CUresult result = cu.cuMemCreate(&handle, piece, &properties, 0);
    ret_free = [handle] { NEED(cu.cuMemRelease(handle)); };
    return result;
}

// The handle goes at once, as llama.cpp's does: the mapping keeps the memory.
CUresult take_mapped(CUmemoryPool, Free &ret_free) {
    const CUmemAllocationProp properties = on_device_0();
    CUmemGenericAllocationHandle handle = 0;
    const CUresult result = cu.cuMemCreate(&handle, piece, &properties, 0);
    CUdeviceptr ptr = 0;
    if (result == CUDA_SUCCESS) {
        NEED(cu.cuMemAddressReserve(&ptr, piece, 0, 0, 0));
        NEED(cu.cuMemMap(ptr, piece, 0, handle, 0));
        NEED(cu.cuMemRelease(handle));
    }
    ret_free = [ptr] {
        NEED(cu.cuMemUnmap(ptr, piece));
        NEED(cu.cuMemAddressFree(ptr, piece));
    };
    return result;
}

CUresult take_array(CUmemoryPool, Free &ret_free) {
    CUDA_ARRAY_DESCRIPTOR flat = {};
    flat.Width = 1024;
    flat.Height = piece / flat.Width / 16;
    flat.Format = CU_AD_FORMAT_FLOAT;
    flat.NumChannels = 4;
    CUarray array = nullptr;
    const CUresult result = cu.cuArrayCreate(&array, &flat);
    ret_free = [array] { NEED(cu.cuArrayDestroy(array)); };
    return result;
}

CUresult take_mipmapped_array(CUmemoryPool, Free &ret_free) {
    CUDA_ARRAY3D_DESCRIPTOR flat = {};
    flat.Width = flat.Height = 2048;
    flat.Format = CU_AD_FORMAT_UNSIGNED_INT8;
    flat.NumChannels = 4;
    CUmipmappedArray array = nullptr;
    const CUresult result = cu.cuMipmappedArrayCreate(&array, &flat, 1);
    ret_free = [array] { NEED(cu.cuMipmappedArrayDestroy(array)); };
    return result;
}

CUresult take_graph_node(CUmemoryPool, Free &ret_free) {
    CUgraph graph = nullptr;
    CUgraphNode node = nullptr;
    CUDA_MEM_ALLOC_NODE_PARAMS params = {};
    params.poolProps.allocType = CU_MEM_ALLOCATION_TYPE_PINNED;
    params.poolProps.location = device_0();
    params.bytesize = piece;
    NEED(cu.cuGraphCreate(&graph, 0));
    const CUresult result = cu.cuGraphAddMemAllocNode(&node, graph, nullptr, 0, &params);
    ret_free = [graph] { NEED(cu.cuGraphDestroy(graph)); };
    if (result != CUDA_SUCCESS) {
        ret_free();
    }
    return result;
}

struct Kind {
    const char *name;
    Take take;
    bool has_own_pool = false;
    bool is_current = false; // whether that pool is the device's
    bool keeps = false;      // whether it keeps freed memory
};

const Kind kinds[] = {{"cuMemAlloc", take_block},
                      {"cuMemAllocAsync", take_async},
                      {"a pool of its own", take_from_pool, true},
                      {"the device's current pool", take_async, true, true},
                      {"a keeping pool of its own", take_from_pool, true, false, true},
                      {"the device's current, keeping pool", take_async, true, true, true},
                      {"cuMemCreate", take_physical},
                      {"a mapping without a handle", take_mapped},
                      {"arrays", take_array},
                      {"mipmapped arrays", take_mipmapped_array},
                      {"graph nodes", take_graph_node}};

// The pool that a kind's pieces need.
class Source {
public:
    explicit Source(const Kind &kind)
        : pool_(!kind.has_own_pool ? nullptr
                : kind.keeps       ? make_keeping_pool()
                                   : make_pool()) {
        if (kind.is_current) {
            NEED(cu.cuDeviceGetMemPool(&before_, 0));
            NEED(cu.cuDeviceSetMemPool(0, pool_));
        }
    }
    ~Source() {
        if (before_) {
            NEED(cu.cuDeviceSetMemPool(0, before_));
        }
        if (pool_) {
            NEED(cu.cuMemPoolDestroy(pool_));
        }
    }
    Source(const Source &) = delete;
    Source &operator=(const Source &) = delete;
    CUmemoryPool pool() const { return pool_; }

private:
    const CUmemoryPool pool_;
    CUmemoryPool before_ = nullptr;
};

struct Piece {
    CUcontext context;
    Free free;
};

class Contexts {
public:
    explicit Contexts(size_t count) : contexts_(count) {
        for (CUcontext &context : contexts_) {
            NEED(cu.cuCtxCreate_v2(&context, 0, 0));
        }
    }
    ~Contexts() {
        for (CUcontext context : contexts_) {
            cu.cuCtxDestroy(context);
        }
    }
    // Takes pieces of each kind in turn, until each kind was refused once, or so many exist.
    std::vector<Piece> fill(const Kind &kind, CUmemoryPool pool, size_t most = SIZE_MAX) const {
        std::vector<Piece> pieces;
        for (size_t refused = 0, i = 0; refused < contexts_.size() && pieces.size() < most; i++) {
            Piece next = {contexts_[i % contexts_.size()], {}};
            NEED(cu.cuCtxSetCurrent(next.context));
            const CUresult result = kind.take(pool, next.free);
            refused = result == CUDA_SUCCESS ? 0 : refused + 1;
            if (result == CUDA_SUCCESS) {
                pieces.push_back(std::move(next));
            } else if (result != CUDA_ERROR_OUT_OF_MEMORY) {
                fact(false, "%s: the refusal is out of memory, and not %s", kind.name,
                     name_of(result));
            }
        }
        return pieces;
    }

private:
    std::vector<CUcontext> contexts_;
};

void others_are_refused(const Kind &full, CUmemoryPool pool) {
    for (const Kind &kind : kinds) {
        Free free;
        if (kind.has_own_pool || (full.is_current && kind.take == take_async)) {
            continue;
        }
        const CUresult got = kind.take(pool, free);
        fact(got == CUDA_ERROR_OUT_OF_MEMORY, "%s is full: %s is refused", full.name, kind.name);
        if (got == CUDA_SUCCESS) {
            free();
        }
    }
}

void take_all(const Kind &kind, size_t count) {
    const Contexts contexts(count);
    const Source source(kind);
    const CUmemoryPool pool = source.pool();
    const uint64_t of_contexts = device_bytes();
    for (const char *time : {"first", "second"}) {
        std::vector<Piece> pieces = contexts.fill(kind, pool);
        const uint64_t obtained = pieces.size() * piece, used = device_bytes(),
                       most = of_contexts + bound + uncounted_bytes(count);
        fact(obtained <= bound, "%s, %zu contexts, %s time: not above the bound", kind.name, count,
             time);
        fact(obtained >= bound / 100 * 99, "%s, %zu contexts, %s time: 99 %% of it", kind.name,
             count, time);
        fact(used <= most, "%s, %zu contexts: the driver has given no more", kind.name, count);
        if (used > most) {
            fprintf(stderr, "limit: %zu MiB are in use, %zu were\n", size_t(used / mib),
                    size_t(of_contexts / mib));
        }
        fact(free_bytes() <= bound / 100, "%s, %zu contexts: nothing is free", kind.name, count);
        others_are_refused(kind, pool);
        for (const Piece &each : pieces) {
            NEED(cu.cuCtxSetCurrent(each.context));
            each.free();
        }
    }
}

void give_back(std::vector<Piece> &pieces) {
    for (const Piece &each : pieces) {
        each.free();
    }
    pieces.clear();
}

// For each `KIND COUNT` it takes so many pieces more of that kind, prints how many it got, and
// gives all back for a COUNT of 0. First it prints the kinds' names.
int follow() {
    const Contexts contexts(1);
    std::vector<Piece> pieces;
    std::optional<Source> source;
    for (const Kind &kind : kinds) {
        printf("%s\n", kind.name);
    }
    printf("\n");
    fflush(stdout);
    for (size_t number, count; scanf("%zu %zu", &number, &count) == 2;) {
        size_t given = 0;
        if (count == 0) {
            give_back(pieces);
            source.reset();
        } else {
            if (!source) {
                source.emplace(kinds[number]);
            }
            for (Piece &each : contexts.fill(kinds[number], source->pool(), count)) {
                pieces.push_back(std::move(each));
                given++;
            }
        }
        printf("%zu\n", given);
        fflush(stdout);
    }
    give_back(pieces);
    return wrong_facts() == 0 ? 0 : 1;
}

// The pool stays the device's current pool, too.
void a_pool_that_does_not_end_goes_on_counting() {
    const auto fail = simcuda_entry<decltype(&simcuda_fail)>("simcuda_fail");
    if (!fail) {
        return; // no GPU can be made to
    }
    const Contexts contexts(1);
    const CUmemoryPool pool = make_pool();
    CUmemoryPool before = nullptr, current = nullptr;
    CUdeviceptr ptr = 0;
    NEED(cu.cuDeviceGetMemPool(&before, 0));
    NEED(cu.cuDeviceSetMemPool(0, pool));
    const size_t free = free_bytes();
    fail("cuMemPoolDestroy@1");
    fact(cu.cuMemPoolDestroy(pool) != CUDA_SUCCESS, "the driver refuses to destroy a pool");
    fail("");
    NEED(cu.cuMemAllocAsync(&ptr, 256 * mib, nullptr));
    fact(free_bytes() == free - 256 * mib, "what a pool takes later counts");
    fact(cu.cuMemAllocFromPoolAsync(&ptr, bound, pool, nullptr) == CUDA_ERROR_OUT_OF_MEMORY,
         "that pool is within the bound");
    NEED(cu.cuDeviceGetMemPool(&current, 0));
    fact(current == pool, "that pool is the device's as before");
    NEED(cu.cuMemFreeAsync(ptr, nullptr));
    NEED(cu.cuStreamSynchronize(nullptr));
    NEED(cu.cuMemPoolDestroy(pool));
    fact(free_bytes() == free, "it counts no more once it has ended");
    NEED(cu.cuDeviceSetMemPool(0, before));
}

// The simulated driver gives the process its own handle again.
void memory_that_is_imported_again_counts_until_its_last_handle() {
    const Contexts contexts(1);
    CUmemAllocationProp properties = on_device_0();
    properties.requestedHandleTypes = CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR;
    CUmemGenericAllocationHandle handle = 0, again = 0;
    int descriptor = -1;
    const size_t free = free_bytes();
    NEED(cu.cuMemCreate(&handle, 256 * mib, &properties, 0));
    NEED(cu.cuMemExportToShareableHandle(&descriptor, handle, properties.requestedHandleTypes, 0));
    NEED(cu.cuMemImportFromShareableHandle(&again, reinterpret_cast<void *>(uintptr_t(descriptor)),
                                           properties.requestedHandleTypes));
    close(descriptor);
    NEED(cu.cuMemRelease(handle));
    fact(again != handle || free_bytes() == free - 256 * mib,
         "memory with a further handle counts");
    NEED(cu.cuMemRelease(again));
    fact(free_bytes() == free, "memory without a handle counts no more");
}

void levels_that_do_not_fit_take_nothing() {
    const Contexts contexts(1);
    CUDA_ARRAY3D_DESCRIPTOR flat = {};
    flat.Width = flat.Height = 256;
    flat.Format = CU_AD_FORMAT_FLOAT;
    flat.NumChannels = 4;
    CUmipmappedArray array = nullptr;
    fact(cu.cuMipmappedArrayCreate(&array, &flat, bound / 16) == CUDA_SUCCESS,
         "an array has room, however many levels are asked for");
    NEED(cu.cuMipmappedArrayDestroy(array));
}

// In a pool of the driver's, pieces of 20 MiB leave idle memory in each segment: small requests
// fit there, one more piece does not. NULL: the device's current pool.
void a_full_pool_uses_its_idle_memory(CUmemoryPool pool, const char *name) {
    const Contexts contexts(1);
    const uint64_t of_contexts = device_bytes();
    const auto take = [&](size_t bytes, CUdeviceptr &ret_ptr) {
        return pool ? cu.cuMemAllocFromPoolAsync(&ret_ptr, bytes, pool, nullptr)
                    : cu.cuMemAllocAsync(&ret_ptr, bytes, nullptr);
    };
    std::vector<Free> taken;
    uint64_t obtained = 0;
    for (const size_t bytes : {20 * mib, mib}) {
        for (CUdeviceptr ptr = 0; take(bytes, ptr) == CUDA_SUCCESS; obtained += bytes) {
            taken.push_back(free_ordered(ptr));
        }
        fact(device_bytes() <= of_contexts + bound + uncounted_bytes(1),
             "%s has taken no more than the bound", name);
    }
    fact(obtained <= bound && obtained >= bound / 100 * 99, "%s gives 99 %% of the bound", name);
    for (const Free &free : taken) {
        free();
    }
}

// The driver serves a pool that other processes can open.
CUmemoryPool make_drivers_pool() {
    CUmemPoolProps properties = {};
    properties.allocType = CU_MEM_ALLOCATION_TYPE_PINNED;
    properties.handleTypes = CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR;
    properties.location = device_0();
    CUmemoryPool pool = nullptr;
    NEED(cu.cuMemPoolCreate(&pool, &properties));
    return pool;
}

// As without a bound: no device has so much.
void what_makes_no_sense_is_told_so() {
    const Contexts contexts(1);
    CUDA_ARRAY_DESCRIPTOR flat = {};
    flat.Width = flat.Height = size_t(1) << 20;
    flat.Format = CU_AD_FORMAT_FLOAT;
    flat.NumChannels = 3;
    CUarray array = nullptr;
    fact(cu.cuArrayCreate(&array, &flat) == CUDA_ERROR_INVALID_VALUE,
         "a huge array of 3 channels is invalid");
    const CUmemAllocationProp properties = on_device_0();
    CUmemGenericAllocationHandle handle = 0;
    constexpr size_t huge = 128 * bound;
    fact(cu.cuMemCreate(&handle, huge + 1, &properties, 0) == CUDA_ERROR_INVALID_VALUE,
         "huge physical memory of an odd size is invalid");
    fact(cu.cuMemCreate(&handle, huge, &properties, 0) == CUDA_ERROR_OUT_OF_MEMORY,
         "huge physical memory of an even size is out of memory");
}

} // namespace

int main(int argc, char *argv[]) {
    const std::string missing = find_driver(argc > 1 ? argv[1] : "dlsym");
    if (!missing.empty()) {
        fprintf(stderr, "limit: %s\n", missing.c_str());
        return 2;
    }
    NEED(cu.cuInit(0));
    if (argc > 2) {
        return follow();
    }
    begin_case("limit");
    size_t total = 0;
    NEED(cu.cuDeviceTotalMem(&total, 0));
    fact(total == bound, "the device's total is the bound");
    a_pool_that_does_not_end_goes_on_counting();
    what_makes_no_sense_is_told_so();
    levels_that_do_not_fit_take_nothing();
    memory_that_is_imported_again_counts_until_its_last_handle();
    a_full_pool_uses_its_idle_memory(nullptr, "the device's current pool");
    const CUmemoryPool pool = make_drivers_pool();
    a_full_pool_uses_its_idle_memory(pool, "a pool of the driver's");
    NEED(cu.cuMemPoolDestroy(pool));
    for (const size_t contexts : {1, 3}) {
        for (const Kind &kind : kinds) {
            take_all(kind, contexts);
        }
    }
    return wrong_facts() == 0 ? 0 : 1;
}

// A counting function of the same type stands before each driver entry that matters for memory. All
// these entries have kept their signature since CUDA 12.0, so a plugin may ask for any version.
#include "driver/meter.h"

#include "driver/account.h"
#include "driver/charges.h"
#include "observe/environment.h"
#include "observe/process.h"

#include <atomic>
#include <cstring>
#include <emm/cuda.h>
#include <map>
#include <mutex>
#include <new>
#include <optional>

namespace emm::driver {
namespace {

// Looks up uncounted entries, for the meter itself; set before anything is taken.
std::atomic<FindEntry> find_entry{};

template <class Function> Function plain_entry(const char *name) {
    return reinterpret_cast<Function>(find_entry.load(std::memory_order_relaxed)(name, 12000));
}
#define EMM_PLAIN(name) plain_entry<decltype(&::name)>(#name)

std::optional<uint64_t> ask_pool(uint64_t pool, PoolFigure which) {
    static const auto get = EMM_PLAIN(cuMemPoolGetAttribute);
    constexpr CUmemPool_attribute attributes[] = {CU_MEMPOOL_ATTR_RESERVED_MEM_CURRENT,
                                                  CU_MEMPOOL_ATTR_USED_MEM_CURRENT};
    cuuint64_t bytes = 0;
    const CUresult result = get ? get(reinterpret_cast<CUmemoryPool>(pool),
                                      attributes[static_cast<size_t>(which)], &bytes)
                                : CUDA_ERROR_NOT_SUPPORTED;
    return result == CUDA_SUCCESS ? std::optional<uint64_t>(bytes) : std::nullopt;
}

Charges &charges() {
    struct OfProcess : Charges {
        OfProcess() : Charges(account()) {}
    };
    return observe::immortal<OfProcess>();
}

uint64_t host_granules(uint64_t bytes) {
    return (bytes + 4095) / 4096 * 4096;
}

uint64_t key_of(const void *pointer) {
    return reinterpret_cast<uintptr_t>(pointer);
}

uint64_t current_context() {
    static const auto get = EMM_PLAIN(cuCtxGetCurrent);
    static const auto identify = EMM_PLAIN(cuCtxGetId);
    CUcontext context = nullptr;
    unsigned long long id = no_context;
    return get(&context) == CUDA_SUCCESS && identify(context, &id) == CUDA_SUCCESS ? id
                                                                                   : no_context;
}

constexpr int32_t no_device = -1;

CUresult find_current_device(CUdevice &ret_device) {
    static const auto get = EMM_PLAIN(cuCtxGetDevice);
    return get(&ret_device);
}

// The device of the current context. Without a current context: none, because host memory may be
// taken then too.
int32_t current_device() {
    CUdevice device = no_device;
    return find_current_device(device) == CUDA_SUCCESS ? device : no_device;
}

int32_t device_at(const CUmemLocation &location) {
    return location.type == CU_MEM_LOCATION_TYPE_DEVICE ? location.id : no_device;
}

// The effect of a driver call on the account; most calls have none. An allocation is charged before
// the driver is asked. Memory that is given back stays charged until the driver has it.
struct Step {
    uint64_t id = 0;
    uint64_t context = no_context;   // the context with which the memory ends
    CUresult refusal = CUDA_SUCCESS; // if not CUDA_SUCCESS, the driver is not asked
};
CUresult refusal_of(uint64_t id) { // by the bound
    return id == 0 ? CUDA_ERROR_OUT_OF_MEMORY : CUDA_SUCCESS;
}
struct Nothing {
    template <class... Arguments> static Step before(Arguments...) { return {}; }
    template <class Entry, class Before, class... Arguments>
    static CUresult call(Entry entry, const Before &, Arguments... arguments) {
        return entry(arguments...);
    }
    template <class... Arguments> static void succeeded(Step, Arguments...) {}
    template <class... Arguments> static void failed(Step, CUresult, Arguments...) {}
};
template <auto name> struct Effect : Nothing {};

struct Takes : Nothing {
    static Step take(int32_t device, Kind kind, uint64_t bytes) {
        const uint64_t id = account().take({device, Holder::managers, kind, bytes});
        return {id, current_context(), refusal_of(id)};
    }
    // If memory cannot be charged to a device, the call is refused.
    static Step take_here(Kind kind, uint64_t bytes) {
        CUdevice device = no_device;
        const CUresult found = find_current_device(device);
        return found == CUDA_SUCCESS ? take(device, kind, bytes) : Step{0, no_context, found};
    }
    template <class... Arguments> static void failed(Step step, CUresult, Arguments...) {
        account().give(step.id);
    }
    static void keep(Charges::Key key, Step step) {
        account().keep(step.id);
        charges().attach(key, {step.id, step.context});
    }
};

template <Charges::By by> struct GivesBack : Nothing {
    static Step before(uint64_t key) {
        const Charges::Charge charge = charges().detach({by, key});
        return {charge.id, charge.context};
    }
    static Step before(const void *key) { return before(key_of(key)); }
    template <class Key> static void succeeded(Step step, Key) { account().give(step.id); }
    // If the driver does not know the memory any more, the memory is gone.
    static void failed(Step step, CUresult result, uint64_t key) {
        if (cuda::is_returned(result)) {
            account().give(step.id);
        } else if (step.id != 0) {
            charges().attach({by, key}, {step.id, step.context});
        }
    }
    static void failed(Step step, CUresult result, const void *key) {
        failed(step, result, key_of(key));
    }
};
template <> struct Effect<&cuMemFree> : GivesBack<Charges::By::address> {};
template <> struct Effect<&cuMemRelease> : GivesBack<Charges::By::handle> {};
template <> struct Effect<&cuMemFreeHost> : GivesBack<Charges::By::host> {};
template <> struct Effect<&cuMemPoolDestroy> : GivesBack<Charges::By::pool> {
    static Step before(CUmemoryPool pool) {
        account().pool_ends(key_of(pool));
        return GivesBack::before(pool);
    }
};

template <Kind kind> struct TakesBlock : Takes {
    template <class... Flags> static Step before(CUdeviceptr *, size_t size, Flags...) {
        return take_here(kind, device_granules(size));
    }
    template <class... Flags> static void succeeded(Step step, CUdeviceptr *ptr, size_t, Flags...) {
        keep({Charges::By::address, *ptr}, step);
    }
};
template <> struct Effect<&cuMemAlloc> : TakesBlock<Kind::block> {};
template <> struct Effect<&cuMemAllocManaged> : TakesBlock<Kind::managed> {};
template <> struct Effect<&cuMemHostAlloc> : Takes {
    static Step before(void **, size_t size, unsigned) {
        return take_here(Kind::pinned, host_granules(size));
    }
    static void succeeded(Step step, void **host, size_t, unsigned) {
        keep({Charges::By::host, key_of(*host)}, step);
    }
};

// Physical memory and pools outlive contexts.
struct TakesForGood : Takes {
    static Step take(int32_t device, Kind kind, uint64_t bytes) {
        Step step = Takes::take(device, kind, bytes);
        step.context = no_context;
        return step;
    }
};
template <> struct Effect<&cuMemCreate> : TakesForGood {
    static Step before(CUmemGenericAllocationHandle *, size_t size,
                       const CUmemAllocationProp *properties, unsigned long long) {
        return properties->location.type == CU_MEM_LOCATION_TYPE_DEVICE
                   ? take(properties->location.id, Kind::physical, size)
                   : take(current_device(), Kind::pinned, size);
    }
    static void succeeded(Step step, CUmemGenericAllocationHandle *handle, size_t,
                          const CUmemAllocationProp *, unsigned long long) {
        keep({Charges::By::handle, *handle}, step);
    }
};
// A mapping keeps the memory, so the handle may be released first.
template <> struct Effect<&cuMemMap> : Nothing {
    static Step before(CUdeviceptr, size_t, size_t, CUmemGenericAllocationHandle handle,
                       unsigned long long) {
        return {charges().find({Charges::By::handle, handle})};
    }
    static void succeeded(Step step, CUdeviceptr ptr, size_t, size_t, CUmemGenericAllocationHandle,
                          unsigned long long) {
        if (step.id != 0) {
            account().keep(step.id);
            charges().attach({Charges::By::mapping, ptr}, {step.id});
        }
    }
};
// If the driver refuses to unmap a range, the range stays mapped.
template <> struct Effect<&cuMemUnmap> : Nothing {
    using Mappings = std::map<Charges::Key, Charges::Charge>;
    static Mappings before(CUdeviceptr ptr, size_t size) {
        return charges().detach_mappings(ptr, size);
    }
    static void succeeded(const Mappings &mappings, CUdeviceptr, size_t) {
        for (const auto &[key, charge] : mappings) {
            account().give(charge.id);
        }
    }
    static void failed(const Mappings &mappings, CUresult, CUdeviceptr, size_t) {
        for (const auto &[key, charge] : mappings) {
            charges().attach(key, charge);
        }
    }
};
template <> struct Effect<&cuMemPoolCreate> : TakesForGood {
    static Step before(CUmemoryPool *, const CUmemPoolProps *properties) {
        return take(device_at(properties->location), Kind::pool, 0);
    }
    static void succeeded(Step step, CUmemoryPool *pool, const CUmemPoolProps *) {
        account().keep(step.id, key_of(*pool));
        charges().attach({Charges::By::pool, key_of(*pool)}, {step.id});
    }
};

// In a capture the allocation is a node of the graph, and stays. False: it stays.
bool give_back_growth(CUdeviceptr ptr, CUmemoryPool pool, CUstream stream) {
    static const auto capturing = EMM_PLAIN(cuStreamIsCapturing);
    static const auto free = EMM_PLAIN(cuMemFreeAsync);
    static const auto trim = EMM_PLAIN(cuMemPoolTrimTo);
    CUstreamCaptureStatus status = CU_STREAM_CAPTURE_STATUS_NONE;
    if (capturing(stream, &status) != CUDA_SUCCESS || status != CU_STREAM_CAPTURE_STATUS_NONE ||
        free(ptr, stream) != CUDA_SUCCESS) {
        return false;
    }
    trim(pool, 0);
    return true;
}

// Only the driver knows whether the pool grows for the allocation.
template <> struct Effect<&cuMemAllocFromPoolAsync> : Takes {
    static Step before(CUdeviceptr *, size_t size, CUmemoryPool pool, CUstream) {
        const uint64_t id = account().take_growth(key_of(pool), size);
        return {id, no_context, refusal_of(id)};
    }
    // Near the bound one call at a time, so that none is refused for another's growth.
    template <class Entry>
    static CUresult call(Entry entry, Step step, CUdeviceptr *ret_ptr, size_t size,
                         CUmemoryPool pool, CUstream stream) {
        if (!account().may_exceed(step.id)) {
            return entry(ret_ptr, size, pool, stream);
        }
        static std::mutex mutex;
        const std::lock_guard lock(mutex);
        CUdeviceptr ptr = 0;
        const CUresult result = entry(&ptr, size, pool, stream);
        if (result == CUDA_SUCCESS && account().exceeds(step.id) &&
            give_back_growth(ptr, pool, stream)) {
            return CUDA_ERROR_OUT_OF_MEMORY;
        }
        if (result == CUDA_SUCCESS) {
            *ret_ptr = ptr;
        }
        return result;
    }
    static void succeeded(Step step, CUdeviceptr *, size_t, CUmemoryPool, CUstream) {
        account().give(step.id);
    }
};

template <> struct Effect<&cuMemGetInfo> : Nothing {
    static void succeeded(Step, size_t *ret_free, size_t *ret_total) {
        CUdevice device = no_device;
        if (find_current_device(device) == CUDA_SUCCESS) {
            account().bound_figures(device, ret_free, ret_total);
        }
    }
};
template <> struct Effect<&cuDeviceTotalMem> : Nothing {
    static void succeeded(Step, size_t *ret_total, CUdevice device) {
        account().bound_figures(device, nullptr, ret_total);
    }
};

// One for each entry, on cache lines of their own, because threads call different entries at once.
struct alignas(64) Counter {
    std::atomic<uint64_t> calls{0};
};

template <auto name, class Function = decltype(name)> struct Metered;
template <auto name, class... Arguments> struct Metered<name, CUresult (*)(Arguments...)> {
    // atomic, because a plugin looks up entries for each context while other threads call
    static inline std::atomic<CUresult (*)(Arguments...)> real{nullptr};
    static inline Counter counter;

    static CUresult CUDAAPI call(Arguments... arguments) {
        counter.calls.fetch_add(1, std::memory_order_relaxed);
        try {
            const auto step = Effect<name>::before(arguments...);
            if constexpr (requires { step.refusal; }) {
                if (step.refusal != CUDA_SUCCESS) {
                    return step.refusal;
                }
            }
            const CUresult result =
                Effect<name>::call(real.load(std::memory_order_relaxed), step, arguments...);
            if (result == CUDA_SUCCESS) {
                Effect<name>::succeeded(step, arguments...);
            } else {
                Effect<name>::failed(step, result, arguments...);
            }
            return result;
        } catch (const std::bad_alloc &) { // before the driver was asked
            return CUDA_ERROR_OUT_OF_MEMORY;
        }
    }

    static emm_function install(emm_function entry) {
        real.store(reinterpret_cast<CUresult (*)(Arguments...)>(entry), std::memory_order_relaxed);
        return reinterpret_cast<emm_function>(&call);
    }
};

struct Row {
    const char *name;
    Counter *counter;
    emm_function (*install)(emm_function entry);
};

template <auto name> Row row_of(const char *text) {
    return {text, &Metered<name>::counter, &Metered<name>::install};
}

#define EMM_METERED(name) row_of<&::name>(#name)
const Row rows[] = {
    // memory
    EMM_METERED(cuMemAlloc),
    EMM_METERED(cuMemFree),
    EMM_METERED(cuMemAllocManaged),
    EMM_METERED(cuMemHostAlloc),
    EMM_METERED(cuMemFreeHost),
    EMM_METERED(cuMemHostRegister),
    EMM_METERED(cuMemHostUnregister),
    EMM_METERED(cuMemGetInfo),
    EMM_METERED(cuDeviceTotalMem),
    // memory pools
    EMM_METERED(cuMemAllocAsync),
    EMM_METERED(cuMemAllocFromPoolAsync),
    EMM_METERED(cuMemFreeAsync),
    EMM_METERED(cuMemPoolCreate),
    EMM_METERED(cuMemPoolDestroy),
    EMM_METERED(cuMemPoolSetAttribute),
    EMM_METERED(cuMemPoolTrimTo),
    // physical memory
    EMM_METERED(cuMemCreate),
    EMM_METERED(cuMemRelease),
    EMM_METERED(cuMemMap),
    EMM_METERED(cuMemUnmap),
    EMM_METERED(cuMemSetAccess),
    EMM_METERED(cuMemAddressReserve),
    EMM_METERED(cuMemAddressFree),
    // memory of other processes
    EMM_METERED(cuIpcGetMemHandle),
    EMM_METERED(cuIpcOpenMemHandle),
    EMM_METERED(cuIpcCloseMemHandle),
    EMM_METERED(cuMemExportToShareableHandle),
    EMM_METERED(cuMemImportFromShareableHandle),
    EMM_METERED(cuMemPoolExportToShareableHandle),
    EMM_METERED(cuMemPoolImportFromShareableHandle),
    EMM_METERED(cuMemPoolExportPointer),
    EMM_METERED(cuMemPoolImportPointer),
    // order
    EMM_METERED(cuEventCreate),
    EMM_METERED(cuEventDestroy),
    EMM_METERED(cuEventRecord),
    EMM_METERED(cuEventQuery),
    EMM_METERED(cuEventSynchronize),
    EMM_METERED(cuStreamWaitEvent),
    EMM_METERED(cuStreamSynchronize),
    EMM_METERED(cuCtxSynchronize),
    EMM_METERED(cuStreamGetId),
    EMM_METERED(cuStreamIsCapturing),
    EMM_METERED(cuStreamCreate),
    EMM_METERED(cuStreamDestroy),
    EMM_METERED(cuThreadExchangeStreamCaptureMode),
    EMM_METERED(cuCtxPushCurrent),
    EMM_METERED(cuCtxPopCurrent),
#if CUDA_VERSION >= 12050
    EMM_METERED(cuCtxRecordEvent),
#endif
};

bool metering() {
    static const bool on = observe::setting("EMM_DRIVER_METER") == "1";
    return on;
}

} // namespace

Account &account() {
    struct OfProcess : Account {
        OfProcess() : Account(&ask_pool) {}
    };
    return observe::immortal<OfProcess>();
}

emm_function meter(const char *name, emm_function entry, FindEntry find) noexcept {
    find_entry.store(find, std::memory_order_relaxed);
    if (!is_counted()) {
        return entry;
    }
    for (const Row &row : rows) {
        if (std::strcmp(row.name, name) == 0) {
            return row.install(entry);
        }
    }
    return entry;
}

bool is_counted() noexcept {
    static const bool is = metering() || !observe::environment("EMM_LIMIT").empty();
    return is;
}

void forget_context(uint64_t context) noexcept {
    charges().end(context);
}

bool holds_memory(uint64_t context) noexcept {
    return charges().has_any(context);
}

void read_usage(emm_driver_usage &ret_usage) {
    ret_usage.metered = metering();
    if (!ret_usage.metered) {
        return;
    }
    const Tally device = account().managers_total(false), host = account().managers_total(true);
    const Tally pools = account().managers_pools();
    ret_usage.device_bytes = device.bytes + pools.bytes;
    ret_usage.peak_device_bytes = device.peak_bytes + pools.peak_bytes;
    ret_usage.host_bytes = host.bytes;
    ret_usage.peak_host_bytes = host.peak_bytes;
}

void visit_calls(const std::function<bool(const char *name, uint64_t calls)> &visit) {
    for (const Row &row : rows) {
        const uint64_t calls = row.counter->calls.load(std::memory_order_relaxed);
        if (calls != 0 && !visit(row.name, calls)) {
            return;
        }
    }
}

} // namespace emm::driver

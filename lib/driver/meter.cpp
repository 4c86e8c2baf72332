// One counting function stands before each driver entry that matters for memory, made from the
// entry's own type. Only entries whose signature has not changed since CUDA 12.0 are here, so that
// it does not matter which version a plugin asked for.
#include "driver/meter.h"

#include "observe/environment.h"
#include "observe/process.h"

#include <algorithm>
#include <atomic>
#include <cstring>
#include <emm/cuda.h>
#include <map>
#include <mutex>
#include <set>

namespace emm::driver {
namespace {

// What the metered calls took from the driver and have not given back.
class Ledger {
public:
    enum class Side { device, host };

    struct Taken {
        Side side = Side::device;
        uint64_t bytes = 0; // 0: nothing
    };

    // Of entries that are not counted, which it asks itself; set before anything is taken.
    std::atomic<emm_function (*)(const char *name, int32_t cuda_version) noexcept> find_entry{};

    void took(uint64_t key, Taken taken);
    Taken gave_back(uint64_t key);
    void pool_made(CUmemoryPool pool);
    void pool_gone(CUmemoryPool pool);
    void read(emm_driver_usage &ret_usage);

private:
    uint64_t pool_bytes(CUmemoryPool pool, CUmemPool_attribute attribute) const;

    struct Sum {
        uint64_t now = 0, peak = 0;
    };
    std::mutex mutex_;
    std::map<uint64_t, Taken> taken_; // by address or handle
    std::set<CUmemoryPool> pools_;
    Sum sums_[2];
    uint64_t gone_pools_peak_ = 0;
};

uint64_t Ledger::pool_bytes(CUmemoryPool pool, CUmemPool_attribute attribute) const {
    using Get = CUresult (*)(CUmemoryPool, CUmemPool_attribute, void *);
    static const Get get = reinterpret_cast<Get>(find_entry.load()("cuMemPoolGetAttribute", 12000));
    cuuint64_t bytes = 0;
    return get && get(pool, attribute, &bytes) == CUDA_SUCCESS ? bytes : 0;
}

void Ledger::took(uint64_t key, Taken taken) {
    if (taken.bytes == 0) {
        return;
    }
    std::lock_guard lock(mutex_);
    taken_[key] = taken;
    Sum &sum = sums_[static_cast<int>(taken.side)];
    sum.now += taken.bytes;
    sum.peak = std::max(sum.peak, sum.now);
}

Ledger::Taken Ledger::gave_back(uint64_t key) {
    std::lock_guard lock(mutex_);
    const auto found = taken_.find(key);
    if (found == taken_.end()) {
        return {}; // memory of a pool, which keeps its own account
    }
    const Taken taken = found->second;
    sums_[static_cast<int>(taken.side)].now -= taken.bytes;
    taken_.erase(found);
    return taken;
}

void Ledger::pool_made(CUmemoryPool pool) {
    std::lock_guard lock(mutex_);
    pools_.insert(pool);
}

void Ledger::pool_gone(CUmemoryPool pool) {
    const uint64_t peak = pool_bytes(pool, CU_MEMPOOL_ATTR_RESERVED_MEM_HIGH);
    std::lock_guard lock(mutex_);
    if (pools_.erase(pool) != 0) {
        gone_pools_peak_ = std::max(gone_pools_peak_, peak);
    }
}

void Ledger::read(emm_driver_usage &ret_usage) {
    std::set<CUmemoryPool> pools;
    {
        std::lock_guard lock(mutex_);
        ret_usage.device_bytes = sums_[0].now;
        ret_usage.peak_device_bytes = sums_[0].peak;
        ret_usage.host_bytes = sums_[1].now;
        ret_usage.peak_host_bytes = sums_[1].peak;
        pools = pools_;
    }
    uint64_t peak = 0;
    for (const CUmemoryPool pool : pools) {
        ret_usage.device_bytes += pool_bytes(pool, CU_MEMPOOL_ATTR_RESERVED_MEM_CURRENT);
        peak += pool_bytes(pool, CU_MEMPOOL_ATTR_RESERVED_MEM_HIGH);
    }
    ret_usage.peak_device_bytes += std::max(peak, gone_pools_peak_);
}

// cuMemAlloc packs small blocks at 512 bytes and takes whole 2 MiB pages for the others.
constexpr uint64_t small_granule = 512, page = uint64_t(2) << 20, small_limit = uint64_t(1) << 20;

uint64_t round_up(uint64_t bytes, uint64_t granule) {
    return (bytes + granule - 1) / granule * granule;
}

uint64_t device_granules(uint64_t bytes) {
    return round_up(bytes, bytes < small_limit ? small_granule : page);
}

uint64_t host_granules(uint64_t bytes) {
    return round_up(bytes, 4096);
}

constexpr auto &ledger = observe::immortal<Ledger>;

uint64_t key_of(const void *pointer) {
    return reinterpret_cast<uintptr_t>(pointer);
}

// What a call means for the ledger; most mean nothing. What gives memory back is written down
// before the call, because another thread may get the same address as soon as the driver has it,
// and restored if the call fails.
struct Nothing {
    template <class... Arguments> static Ledger::Taken before(Arguments...) { return {}; }
    template <class... Arguments> static void succeeded(Arguments...) {}
    template <class... Arguments> static void failed(Ledger::Taken, Arguments...) {}
};
template <auto name> struct Effect : Nothing {};

struct GivesBack : Nothing {
    static Ledger::Taken before(uint64_t key) { return ledger().gave_back(key); }
    static Ledger::Taken before(void *host) { return before(key_of(host)); }
    static void failed(Ledger::Taken taken, uint64_t key) { ledger().took(key, taken); }
    static void failed(Ledger::Taken taken, void *host) { failed(taken, key_of(host)); }
};
template <> struct Effect<&cuMemFree> : GivesBack {};
template <> struct Effect<&cuMemRelease> : GivesBack {};
template <> struct Effect<&cuMemFreeHost> : GivesBack {};

template <> struct Effect<&cuMemAlloc> : Nothing {
    static void succeeded(CUdeviceptr *ptr, size_t size) {
        ledger().took(*ptr, {Ledger::Side::device, device_granules(size)});
    }
};
template <> struct Effect<&cuMemAllocManaged> : Nothing {
    static void succeeded(CUdeviceptr *ptr, size_t size, unsigned) {
        ledger().took(*ptr, {Ledger::Side::device, device_granules(size)});
    }
};
template <> struct Effect<&cuMemCreate> : Nothing {
    static void succeeded(CUmemGenericAllocationHandle *handle, size_t size,
                          const CUmemAllocationProp *, unsigned long long) {
        ledger().took(*handle, {Ledger::Side::device, size});
    }
};
template <> struct Effect<&cuMemHostAlloc> : Nothing {
    static void succeeded(void **host, size_t size, unsigned) {
        ledger().took(key_of(*host), {Ledger::Side::host, host_granules(size)});
    }
};
template <> struct Effect<&cuMemPoolCreate> : Nothing {
    static void succeeded(CUmemoryPool *pool, const CUmemPoolProps *) { ledger().pool_made(*pool); }
};
template <> struct Effect<&cuMemPoolDestroy> : Nothing {
    static Ledger::Taken before(CUmemoryPool pool) {
        ledger().pool_gone(pool);
        return {};
    }
};

// One for each entry, on cache lines of their own: threads call different entries at once.
struct alignas(64) Counter {
    std::atomic<uint64_t> calls{0};
};

template <auto name, class Function = decltype(name)> struct Metered;
template <auto name, class... Arguments> struct Metered<name, CUresult (*)(Arguments...)> {
    static inline CUresult (*real)(Arguments...) = nullptr;
    static inline Counter counter;

    static CUresult CUDAAPI call(Arguments... arguments) {
        counter.calls.fetch_add(1, std::memory_order_relaxed);
        const Ledger::Taken taken = Effect<name>::before(arguments...);
        const CUresult result = real(arguments...);
        if (result == CUDA_SUCCESS) {
            Effect<name>::succeeded(arguments...);
        } else {
            Effect<name>::failed(taken, arguments...);
        }
        return result;
    }

    static emm_function install(emm_function entry) {
        real = reinterpret_cast<CUresult (*)(Arguments...)>(entry);
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
    // memory pools
    EMM_METERED(cuMemAllocAsync),
    EMM_METERED(cuMemAllocFromPoolAsync),
    EMM_METERED(cuMemFreeAsync),
    EMM_METERED(cuMemPoolCreate),
    EMM_METERED(cuMemPoolDestroy),
    EMM_METERED(cuMemPoolTrimTo),
    // physical memory
    EMM_METERED(cuMemCreate),
    EMM_METERED(cuMemRelease),
    EMM_METERED(cuMemMap),
    EMM_METERED(cuMemUnmap),
    EMM_METERED(cuMemSetAccess),
    EMM_METERED(cuMemAddressReserve),
    EMM_METERED(cuMemAddressFree),
    // other processes
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

emm_function meter(const char *name, emm_function entry, FindEntry find) noexcept {
    if (!metering()) {
        return entry;
    }
    ledger().find_entry.store(find, std::memory_order_relaxed);
    for (const Row &row : rows) {
        if (std::strcmp(row.name, name) == 0) {
            return row.install(entry);
        }
    }
    return entry;
}

void read_usage(emm_driver_usage &ret_usage) {
    ret_usage.metered = metering();
    if (ret_usage.metered) {
        ledger().read(ret_usage);
    }
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

// A library in the shape of libcuda.so.1 that counts and times the calls that pass through it. Both
// emm and CUDA's runtime, linked statically or not, open libcuda.so.1 and ask its cuGetProcAddress
// for all entries. Here that function gives counting ones in their place. Every other symbol is the
// real driver's, which this library is linked to by the name libreal-driver.so.
//
// Uses nothing of the C++ library: a process may load this library before a newer one of its own.
#include <cuda.h>

#include <atomic>
#include <cstdint>
#include <cstring>
#include <ctime>
#include <dlfcn.h>

#undef cuGetProcAddress

#define EMM_PEERS_EXPORT extern "C" __attribute__((visibility("default")))

namespace {

std::atomic<uint64_t> all_calls{0}, all_ns{0};

uint64_t now_ns() {
    timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return static_cast<uint64_t>(now.tv_sec) * 1'000'000'000 + static_cast<uint64_t>(now.tv_nsec);
}

// The driver may have two functions of one name and type: for the legacy default stream and for
// those of each thread. So a name has two stand-ins.
template <auto name, int which, class Function = decltype(name)> struct StandIn;
template <auto name, int which, class... Arguments>
struct StandIn<name, which, CUresult(CUDAAPI *)(Arguments...)> {
    static inline std::atomic<void *> real{nullptr};

    static CUresult CUDAAPI call(Arguments... arguments) {
        const auto function = reinterpret_cast<CUresult(CUDAAPI *)(Arguments...)>(real.load());
        const uint64_t began = now_ns();
        const CUresult result = function(arguments...);
        all_ns.fetch_add(now_ns() - began, std::memory_order_relaxed);
        all_calls.fetch_add(1, std::memory_order_relaxed);
        return result;
    }
    // Null if this stand-in already stands for another function.
    static void *stand_for(void *function) {
        void *none = nullptr;
        return real.compare_exchange_strong(none, function) || none == function
                   ? reinterpret_cast<void *>(&call)
                   : nullptr;
    }
};

template <auto name> void *stand_in(void *function) {
    void *const first = StandIn<name, 0>::stand_for(function);
    void *const second = first ? nullptr : StandIn<name, 1>::stand_for(function);
    return first ? first : second ? second : function;
}

struct Row {
    const char *name;
    void *(*stand_in)(void *function);
};

// The functions that emm's own meter counts. Their types have not changed since CUDA 12.0.
#define EMM_PEERS_ROW(name)                                                                        \
    { #name, &stand_in < &::name> }
constexpr Row rows[] = {
    // memory
    EMM_PEERS_ROW(cuMemAlloc),
    EMM_PEERS_ROW(cuMemFree),
    EMM_PEERS_ROW(cuMemAllocManaged),
    EMM_PEERS_ROW(cuMemHostAlloc),
    EMM_PEERS_ROW(cuMemFreeHost),
    EMM_PEERS_ROW(cuMemHostRegister),
    EMM_PEERS_ROW(cuMemHostUnregister),
    EMM_PEERS_ROW(cuMemGetInfo),
    // memory pools
    EMM_PEERS_ROW(cuMemAllocAsync),
    EMM_PEERS_ROW(cuMemAllocFromPoolAsync),
    EMM_PEERS_ROW(cuMemFreeAsync),
    EMM_PEERS_ROW(cuMemPoolCreate),
    EMM_PEERS_ROW(cuMemPoolDestroy),
    EMM_PEERS_ROW(cuMemPoolTrimTo),
    // physical memory
    EMM_PEERS_ROW(cuMemCreate),
    EMM_PEERS_ROW(cuMemRelease),
    EMM_PEERS_ROW(cuMemMap),
    EMM_PEERS_ROW(cuMemUnmap),
    EMM_PEERS_ROW(cuMemSetAccess),
    EMM_PEERS_ROW(cuMemAddressReserve),
    EMM_PEERS_ROW(cuMemAddressFree),
    // order
    EMM_PEERS_ROW(cuEventCreate),
    EMM_PEERS_ROW(cuEventDestroy),
    EMM_PEERS_ROW(cuEventRecord),
    EMM_PEERS_ROW(cuEventQuery),
    EMM_PEERS_ROW(cuEventSynchronize),
    EMM_PEERS_ROW(cuStreamWaitEvent),
    EMM_PEERS_ROW(cuStreamSynchronize),
    EMM_PEERS_ROW(cuCtxSynchronize),
    EMM_PEERS_ROW(cuStreamGetId),
    EMM_PEERS_ROW(cuStreamIsCapturing),
    EMM_PEERS_ROW(cuStreamCreate),
    EMM_PEERS_ROW(cuStreamDestroy),
    EMM_PEERS_ROW(cuThreadExchangeStreamCaptureMode),
    EMM_PEERS_ROW(cuCtxPushCurrent),
    EMM_PEERS_ROW(cuCtxPopCurrent),
#if CUDA_VERSION >= 12050
    EMM_PEERS_ROW(cuCtxRecordEvent),
#endif
};

template <class Function> Function real_function(const char *name) {
    return reinterpret_cast<Function>(dlsym(RTLD_NEXT, name));
}

} // namespace

// The calls so far, and the nanoseconds that they took. No real driver has this entry.
EMM_PEERS_EXPORT CUresult emmPeersDriverUse(uint64_t *ret_calls, uint64_t *ret_ns) {
    *ret_calls = all_calls.load(std::memory_order_relaxed);
    *ret_ns = all_ns.load(std::memory_order_relaxed);
    return CUDA_SUCCESS;
}

EMM_PEERS_EXPORT CUresult CUDAAPI cuGetProcAddress_v2(const char *name, void **ret_function,
                                                      int version, cuuint64_t flags,
                                                      CUdriverProcAddressQueryResult *ret_status);
EMM_PEERS_EXPORT CUresult CUDAAPI cuGetProcAddress(const char *name, void **ret_function,
                                                   int version, cuuint64_t flags);

namespace {

void *instead_of(const char *name, int version, void *found) {
    if (std::strcmp(name, "cuGetProcAddress") == 0) {
        return version >= 12000 ? reinterpret_cast<void *>(&cuGetProcAddress_v2)
                                : reinterpret_cast<void *>(&cuGetProcAddress);
    }
    for (const Row &row : rows) {
        if (std::strcmp(name, row.name) == 0) {
            return row.stand_in(found);
        }
    }
    return found;
}

} // namespace

EMM_PEERS_EXPORT CUresult CUDAAPI cuGetProcAddress_v2(const char *name, void **ret_function,
                                                      int version, cuuint64_t flags,
                                                      CUdriverProcAddressQueryResult *ret_status) {
    const auto real = real_function<decltype(&cuGetProcAddress_v2)>("cuGetProcAddress_v2");
    if (name && std::strcmp(name, "emmPeersDriverUse") == 0) {
        *ret_function = reinterpret_cast<void *>(&emmPeersDriverUse);
        if (ret_status) {
            *ret_status = CU_GET_PROC_ADDRESS_SUCCESS;
        }
        return CUDA_SUCCESS;
    }
    const CUresult result =
        real ? real(name, ret_function, version, flags, ret_status) : CUDA_ERROR_NOT_FOUND;
    if (result == CUDA_SUCCESS && *ret_function) {
        *ret_function = instead_of(name, version, *ret_function);
    }
    return result;
}

EMM_PEERS_EXPORT CUresult CUDAAPI cuGetProcAddress(const char *name, void **ret_function,
                                                   int version, cuuint64_t flags) {
    const auto real = real_function<decltype(&cuGetProcAddress)>("cuGetProcAddress");
    const CUresult result = real ? real(name, ret_function, version, flags) : CUDA_ERROR_NOT_FOUND;
    if (result == CUDA_SUCCESS && *ret_function) {
        *ret_function = instead_of(name, version, *ret_function);
    }
    return result;
}

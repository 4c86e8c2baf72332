#include "entries.h"

#include "call.h"
#include "simcuda.h"
#include "simulator.h"

#define EXPORT extern "C" __attribute__((visibility("default")))

namespace {
using namespace simcuda;
}

// A list of types as parameters with names, (char *p, int p_), and those names as arguments.
#define PARENTHESES ()
#define EXPAND(...) EXPAND_4(EXPAND_4(EXPAND_4(__VA_ARGS__)))
#define EXPAND_4(...) EXPAND_2(EXPAND_2(EXPAND_2(__VA_ARGS__)))
#define EXPAND_2(...) __VA_ARGS__
#define NEXT_PARAMETER() PARAMETER
#define PARAMETER(name, type, ...)                                                                 \
    type name __VA_OPT__(, NEXT_PARAMETER PARENTHESES(name##_, __VA_ARGS__))
#define PARAMETERS(...) (__VA_OPT__(EXPAND(PARAMETER(p, __VA_ARGS__))))
#define NEXT_ARGUMENT() ARGUMENT
#define ARGUMENT(name, type, ...) name __VA_OPT__(, NEXT_ARGUMENT PARENTHESES(name##_, __VA_ARGS__))
#define ARGUMENTS(...) (__VA_OPT__(EXPAND(ARGUMENT(p, __VA_ARGS__))))

// The exported symbols.
#define SERVE(symbol, row, per_thread, function, types)                                            \
    CUresult symbol PARAMETERS types {                                                             \
        return enter(row, per_thread, [&] { return api::function ARGUMENTS types; });              \
    }
#define ENTRY(name, since, symbol, function, types)                                                \
    EXPORT SERVE(symbol, row_##symbol, false, function, types)
#define FREE_ENTRY(name, since, symbol, function, types)                                           \
    EXPORT CUresult symbol PARAMETERS types {                                                      \
        count_call(row_##symbol);                                                                  \
        return api::function ARGUMENTS types;                                                      \
    }
#define STREAM_ENTRY(name, since, symbol, suffix, function, types)                                 \
    ENTRY(name, since, symbol, function, types)                                                    \
    EXPORT SERVE(symbol##_##suffix, row_##symbol, true, function, types)
#define KERNEL_ENTRY(name, since, function, types)                                                 \
    namespace kernels {                                                                            \
    SERVE(name, row_##name, false, function, types)                                                \
    SERVE(name##_ptsz, row_##name, true, function, types)                                          \
    }
#include "entries.def"

namespace simcuda {
namespace {

struct Entry {
    const char *name;
    int since;
    void *function;
    void *per_thread; // the variant for which stream 0 is the thread's own, or NULL
    bool of_kernels = false;
};

const Entry table[] = {
#define ENTRY(name, since, symbol, function, types)                                                \
    {#name, since, reinterpret_cast<void *>(&::symbol), nullptr},
#define STREAM_ENTRY(name, since, symbol, suffix, function, types)                                 \
    {#name, since, reinterpret_cast<void *>(&::symbol),                                            \
     reinterpret_cast<void *>(&::symbol##_##suffix)},
#define KERNEL_ENTRY(name, since, function, types)                                                 \
    {#name, since, reinterpret_cast<void *>(&kernels::name),                                       \
     reinterpret_cast<void *>(&kernels::name##_ptsz), true},
#include "entries.def"
};

const struct {
    const char *name;
    void *function;
} controls[] = {
    {"simcuda_get_counters", reinterpret_cast<void *>(&simcuda_get_counters)},
    {"simcuda_reset_peaks", reinterpret_cast<void *>(&simcuda_reset_peaks)},
    {"simcuda_call_count", reinterpret_cast<void *>(&simcuda_call_count)},
    {"simcuda_last_race", reinterpret_cast<void *>(&simcuda_last_race)},
    {"simcuda_complaint", reinterpret_cast<void *>(&simcuda_complaint)},
    {"simcuda_configure", reinterpret_cast<void *>(&simcuda_configure)},
    {"simcuda_fail", reinterpret_cast<void *>(&simcuda_fail)},
    {"simcuda_spare", reinterpret_cast<void *>(&simcuda_spare)},
    {"simcuda_fault_count", reinterpret_cast<void *>(&simcuda_fault_count)},
    {"simcuda_last_fault", reinterpret_cast<void *>(&simcuda_last_fault)},
    {"simcuda_is_inside", reinterpret_cast<void *>(&simcuda_is_inside)},
    {"simcuda_launch", reinterpret_cast<void *>(&simcuda_launch)},
    {"simcuda_launch_programmatic", reinterpret_cast<void *>(&simcuda_launch_programmatic)},
    {"simcuda_work", reinterpret_cast<void *>(&simcuda_work)},
};

struct Search {
    const Entry *best = nullptr;
    int since = 0;
    bool known = false;

    void consider(const Entry &entry, int entry_since, int version) {
        known = true;
        if (entry_since <= version && entry_since >= since) {
            best = &entry;
            since = entry_since;
        }
    }
};

Search search(std::string_view name, int version) {
    Search found;
    for (const Entry &entry : table) {
        if (name == entry.name && (!entry.of_kernels || sim().kernels.load())) {
            found.consider(entry, entry.since, version);
        }
    }
    return found;
}

void *control(std::string_view name) {
    for (const auto &each : controls) {
        if (name == each.name) {
            return each.function;
        }
    }
    return nullptr;
}

} // namespace

const char *name_of(Row row) {
    return table[row].name;
}

bool is_entry(std::string_view name) {
    return search(name, 0).known;
}

CUresult api::get_proc_address(const char *symbol, void **pfn, int version, cuuint64_t flags,
                               CUdriverProcAddressQueryResult *ret_found) {
    CUdriverProcAddressQueryResult ignored;
    ret_found = ret_found ? ret_found : &ignored;
    if (!symbol || !pfn || flags > CU_GET_PROC_ADDRESS_PER_THREAD_DEFAULT_STREAM) {
        return CUDA_ERROR_INVALID_VALUE;
    }
    *pfn = control(symbol);
    if (*pfn) {
        *ret_found = CU_GET_PROC_ADDRESS_SUCCESS;
        return CUDA_SUCCESS;
    }
    const int posing_as = driver_version();
    const Search found = search(symbol, version < posing_as ? version : posing_as);
    if (!found.best) {
        *ret_found = found.known ? CU_GET_PROC_ADDRESS_VERSION_NOT_SUFFICIENT
                                 : CU_GET_PROC_ADDRESS_SYMBOL_NOT_FOUND;
        return ret_found == &ignored ? CUDA_ERROR_NOT_FOUND : CUDA_SUCCESS;
    }
    const bool per_thread = flags & CU_GET_PROC_ADDRESS_PER_THREAD_DEFAULT_STREAM;
    *pfn = per_thread && found.best->per_thread ? found.best->per_thread : found.best->function;
    *ret_found = CU_GET_PROC_ADDRESS_SUCCESS;
    return CUDA_SUCCESS;
}

CUresult api::get_proc_address_v1(const char *symbol, void **pfn, int version, cuuint64_t flags) {
    return get_proc_address(symbol, pfn, version, flags, nullptr);
}

} // namespace simcuda

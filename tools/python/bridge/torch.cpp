#include "bridge.h"
#include "device.h"
#include "exceptions.h"

#include <array>
#include <atomic>
#include <memory>
#include <string>
#include <utility>

using namespace emm;

namespace {

emm_deviceptr address_of(void *ptr) {
    return reinterpret_cast<uintptr_t>(ptr);
}

// Programs look for PyTorch's own words to recognise this error.
[[noreturn]] void refuse_allocation(emm_status status, size_t size, int device) {
    bridge::refuse(status == EMM_E_OUT_OF_MEMORY ? "CUDA out of memory. Tried to allocate"
                                                 : "emm cannot allocate",
                   size, device);
}

// `find` gives the device's context.
template <class Find> void *allocate(ssize_t size, int device, emm_stream stream, Find find) {
    if (size == 0) {
        return nullptr;
    }
    if (size < 0) {
        bridge::throw_error("emm cannot allocate " + std::to_string(size) + " bytes");
    }
    emm_context *context = nullptr;
    emm_deviceptr ptr = 0;
    emm_status status = find(device, &context);
    if (status >= EMM_OK) {
        status = emm_memalloc(context, size_t(size), stream, &ptr);
    }
    if (status < EMM_OK) {
        refuse_allocation(status, size_t(size), device);
    }
    return reinterpret_cast<void *>(static_cast<uintptr_t>(ptr));
}

// PyTorch's functions have no argument for the caller, so each name has functions of its own.
struct PoolName {
    const std::string name;
    const std::string options;
    const bool has_options;
};
struct NamedPool {
    std::atomic<const PoolName *> chosen{nullptr};               // once, permanently
    std::atomic<emm_context *> known[bridge::most_devices] = {}; // for frees: the latest

    emm_status find(int device, emm_context **ret_context) {
        const PoolName &wanted = *chosen.load(std::memory_order_acquire);
        const char *const options = wanted.has_options ? wanted.options.c_str() : nullptr;
        emm_context *context = nullptr;
        emm_status status = bridge::find_context(device, &context);
        if (status >= EMM_OK) {
            status = emm_context_named(context, wanted.name.c_str(), options, ret_context);
        }
        if (status >= EMM_OK && device < bridge::most_devices) {
            known[device].store(*ret_context, std::memory_order_release);
        }
        return status;
    }
};

constexpr size_t most_pools = 16;
std::array<NamedPool, most_pools> pools;

template <size_t index> void *malloc_in(ssize_t size, int device, emm_stream stream) {
    return allocate(size, device, stream, [](int on, emm_context **ret_context) {
        return pools[index].find(on, ret_context);
    });
}

template <size_t index> void free_in(void *ptr, size_t size, int device, emm_stream stream) {
    const bool is_there = ptr && device >= 0 && device < bridge::most_devices;
    emm_context *const pool =
        is_there ? pools[index].known[device].load(std::memory_order_acquire) : nullptr;
    if (pool) {
        emm_memfree(pool, address_of(ptr), size, stream);
    }
}

struct Functions {
    TorchMalloc malloc;
    TorchFree free;
};

template <size_t... indices>
constexpr std::array<Functions, sizeof...(indices)> functions_of(std::index_sequence<indices...>) {
    return {Functions{&malloc_in<indices>, &free_in<indices>}...};
}

constexpr auto functions = functions_of(std::make_index_sequence<most_pools>());

} // namespace

void *emm_torch_malloc(ssize_t size, int device, emm_stream stream) {
    return allocate(size, device, stream, &bridge::find_context);
}

emm_status emm_torch_pool(const char *name, const char *options, TorchMalloc *ret_malloc,
                          TorchFree *ret_free) {
    if (!name || !*name || !ret_malloc || !ret_free) {
        return EMM_E_INVALID_VALUE;
    }
    auto made = std::make_unique<const PoolName>(
        PoolName{name, options ? options : "", options != nullptr});
    for (size_t i = 0; i < most_pools; i++) {
        const PoolName *there = nullptr;
        if (pools[i].chosen.compare_exchange_strong(there, made.get())) {
            there = made.release();
        }
        if (there->name == name) {
            *ret_malloc = functions[i].malloc;
            *ret_free = functions[i].free;
            return EMM_OK;
        }
    }
    return EMM_E_BUSY;
}

void emm_torch_free(void *ptr, size_t size, int device, emm_stream stream) {
    emm_context *context = bridge::known_context(device);
    if (context && ptr) {
        emm_memfree(context, address_of(ptr), size, stream);
    }
}

// PyTorch does not tell the device of the memory. The context that owns the memory knows it.
void emm_torch_record_stream(void *ptr, emm_stream stream) {
    for (int device = 0; ptr && device < bridge::most_devices; device++) {
        emm_context *context = bridge::known_context(device);
        if (context && emm_record_use(context, address_of(ptr), 0, stream) >= EMM_OK) {
            return;
        }
    }
    if (ptr) {
        bridge::throw_error("emm cannot record the use of a tensor on another stream: " +
                            std::string(emm_last_error()->text));
    }
}

// PyTorch does not say which stream will capture, and announces the capture of a graph like any
// other use of a pool. An announcement too many only holds unordered frees back for a while.
void emm_torch_begin_allocate_to_pool(int device, TorchPool, TorchFilter) {
    emm_context *context = nullptr;
    if (bridge::find_context(device, &context) < EMM_OK ||
        emm_capture_begin(context, EMM_STREAM_LEGACY) < EMM_OK) {
        bridge::throw_error("emm cannot prepare for the capture of a graph: " +
                            std::string(emm_last_error()->text));
    }
}

void emm_torch_end_allocate_to_pool(int device, TorchPool) {
    if (emm_context *context = bridge::known_context(device)) {
        emm_capture_end(context, EMM_STREAM_LEGACY);
    }
}

void emm_torch_empty_cache(void) {
    for (int device = 0; device < bridge::most_devices; device++) {
        if (emm_context *context = bridge::known_context(device)) {
            emm_trim(context, 0, nullptr);
        }
    }
}

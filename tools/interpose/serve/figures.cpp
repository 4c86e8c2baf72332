// The size and the free part of the memory, as the plugin tells them, for CUDA and NVML alike.
#include "server.h"

#include <algorithm>
#include <cstdint>
#include <cstring>

namespace emm::run {
namespace {

void give_back_of_ended() {
    server().give_back_of_ended_graphs();
    server().give_back_of_ended_pools();
}

// Freed memory counts as free once its work is done. Carries out frees that wait; returns no memory
// to the driver.
emm_status memory_info(emm_context *context, size_t *ret_free, size_t *ret_total) {
    if (!server().streams.any_capture()) {
        emm_trim(context, SIZE_MAX, nullptr);
    }
    return emm_get_memory_info(context, ret_free, ret_total);
}

Answer mem_get_info(size_t *ret_free, size_t *ret_total) {
    if (!ret_free && !ret_total) {
        return {};
    }
    return in_current([&](emm_context *context) {
        give_back_of_ended();
        size_t unasked = 0;
        const emm_status status =
            memory_info(context, ret_free ? ret_free : &unasked, ret_total ? ret_total : &unasked);
        return status < 0 ? unserved(status) : CUDA_SUCCESS;
    });
}

// The total that a context of the served device tells. Before the first context exists, the plugin
// tells it for the device.
Answer device_total_mem(size_t *ret_bytes, CUdevice device) {
    size_t free = 0, total = 0;
    const auto kept = server().contexts.keep();
    emm_context *const context = ret_bytes ? server().contexts.known_on(device) : nullptr;
    if (ret_bytes && ((context && emm_get_memory_info(context, &free, &total) >= 0) ||
                      emm_get_device_total(device, &total) >= 0)) {
        *ret_bytes = total;
        return CUDA_SUCCESS;
    }
    return {};
}

// --- NVML --------------------------------------------------------------------------------------

// False: the program does not see the device, as CUDA_VISIBLE_DEVICES says.
bool find_device(const unsigned char *uuid, CUdevice &ret_device) {
    const Driver &driver = server().driver;
    int count = 0;
    if (driver.cuDeviceGetCount(&count) != CUDA_SUCCESS) {
        return false;
    }
    for (int i = 0; i < count; i++) {
        CUuuid its = {};
        if (driver.cuDeviceGet(&ret_device, i) == CUDA_SUCCESS &&
            driver.cuDeviceGetUuid(&its, ret_device) == CUDA_SUCCESS &&
            std::memcmp(its.bytes, uuid, sizeof its.bytes) == 0) {
            return true;
        }
    }
    return false;
}

// The calling thread's context, if it is of this device; else a context that is served there.
emm_context *context_on(CUdevice device) {
    const Server &its = server();
    CUdevice current = 0;
    CUcontext cuda = nullptr;
    emm_context *context = nullptr;
    if (its.driver.cuCtxGetCurrent(&cuda) == CUDA_SUCCESS && cuda &&
        its.driver.cuCtxGetDevice(&current) == CUDA_SUCCESS && current == device) {
        context = server().contexts.known(cuda);
    }
    return context ? context : server().contexts.known_on(device);
}

// The part of the total that the account leaves. Without a bound it is the total.
size_t left_of(size_t total, CUdevice device) {
    auto account = sized<emm_device_account>();
    if (emm_get_device_account(device, &account) < 0 || account.limit_bytes == 0) {
        return total;
    }
    return std::min<uint64_t>(total, account.limit_bytes -
                                         std::min(account.limit_bytes, account.used_bytes));
}

bool figures(const unsigned char *uuid, Figures &ret_figures) {
    const Turn turn;
    CUdevice device = 0;
    size_t whole = 0, free = 0, total = 0;
    if (!turn.is_programs() || !find_device(uuid, device) ||
        ask_driver<&cuDeviceTotalMem>(served_cuDeviceTotalMem_v2, &whole, device) != CUDA_SUCCESS ||
        emm_get_device_total(device, &total) < 0) {
        return false;
    }
    give_back_of_ended();
    const auto kept = server().contexts.keep();
    emm_context *const context = context_on(device);
    const bool has_context = context && memory_info(context, &free, &total) >= 0;
    if (total >= whole) {
        return false;
    }
    ret_figures = {total, has_context ? free : left_of(total, device), has_context};
    return true;
}

} // namespace

void serve_figures(Entries &entries) {
    serve<served_cuMemGetInfo_v2, &mem_get_info>(entries);
    serve<served_cuDeviceTotalMem_v2, &device_total_mem>(entries);
}

} // namespace emm::run

extern "C" __attribute__((visibility("default"))) bool
emm_run_figures(const unsigned char *uuid, emm::run::Figures *ret_figures) {
    try {
        return emm::run::figures(uuid, *ret_figures);
    } catch (const std::bad_alloc &) {
        return false;
    }
}

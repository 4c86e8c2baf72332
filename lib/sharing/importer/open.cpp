#include "sharing/importer/importer.h"

#include "core/handles/handle.h"
#include "core/lifecycle/lifecycle.h"
#include "driver/driver.h"
#include "observe/environment.h"
#include "observe/error.h"
#include "observe/process.h"
#include "sharing/handle/stamp.h"
#include "sharing/importer/connection.h"

#include <cstring>
#include <fmt/ranges.h>
#include <mutex>
#include <string>
#include <vector>

namespace emm::sharing {
namespace {

struct Devices {
    std::mutex mutex;
    std::vector<driver::DeviceIdentity> all; // empty: the driver has not been asked yet
    // Made for copies; never freed, because imports point to them.
    std::vector<emm_context *> sources;
};

constexpr auto &devices = observe::immortal<Devices>;

std::string address_of(uint32_t domain, uint32_t bus, uint32_t device) {
    return fmt::format("{:04x}:{:02x}:{:02x}", domain, bus, device);
}

emm_status check_address(const emm_ipc_handle &handle, const uint32_t (&pci)[3]) {
    if (handle.pci_domain == pci[0] && handle.pci_bus == pci[1] && handle.pci_device == pci[2]) {
        return EMM_OK;
    }
    return observe::refuse("an IPC handle's PCI address: expected {}, found {}",
                           address_of(pci[0], pci[1], pci[2]),
                           address_of(handle.pci_domain, handle.pci_bus, handle.pci_device));
}

bool is_staging_forced() {
    static const bool forced = observe::setting("EMM_IPC_STAGED") == "1";
    return forced;
}

emm_context *find_source(int32_t device) {
    for (emm_context *each = core::first_context(); each; each = each->next) {
        if (each->device == device && !each->given_up.load() && core::is_alive(*each)) {
            return each;
        }
    }
    std::vector<emm_context *> known;
    {
        const std::lock_guard lock(devices().mutex);
        known = devices().sources;
    }
    for (emm_context *each : known) {
        if (each->device == device && core::is_alive(*each)) {
            return each;
        }
    }
    return nullptr;
}

// The driver is asked once, so a damaged handle costs no driver call.
emm_status ask_for_all(const driver::Driver &driver, std::vector<driver::DeviceIdentity> &ret_all) {
    {
        const std::lock_guard lock(devices().mutex);
        ret_all = devices().all;
    }
    if (!ret_all.empty()) {
        return EMM_OK;
    }
    int count = 0;
    EMM_TRY(EMM_DRIVER_CALL(driver, cuDeviceGetCount, &count));
    for (int i = 0; i < count; ++i) {
        EMM_TRY(driver::identify_device(driver, i, &ret_all.emplace_back()));
    }
    const std::lock_guard lock(devices().mutex);
    devices().all = ret_all;
    return EMM_OK;
}

// This process's number of the device on which the handle's memory lies.
emm_status find_device(const emm_context &context, const emm_ipc_handle &handle,
                       int32_t *ret_device) {
    if (std::memcmp(handle.device_uuid, context.uuid, sizeof context.uuid) == 0) {
        *ret_device = context.device;
        return check_address(handle, context.pci);
    }
    std::vector<driver::DeviceIdentity> all;
    EMM_TRY(ask_for_all(context.driver, all));
    for (size_t i = 0; i < all.size(); ++i) {
        if (std::memcmp(handle.device_uuid, all[i].uuid, sizeof all[i].uuid) == 0) {
            *ret_device = static_cast<int32_t>(i);
            return check_address(handle, all[i].pci);
        }
    }
    return observe::refuse("an IPC handle's device: expected one of the {} that this process sees, "
                           "found {:02x}",
                           all.size(), fmt::join(handle.device_uuid, ""));
}

// Whether contexts on device `from` can use memory of device `to`.
emm_status can_reach(const driver::Driver &driver, int32_t from, int32_t to, bool *ret_reachable) {
    int possible = 0;
    if (!is_staging_forced()) {
        EMM_TRY(EMM_DRIVER_CALL(driver, cuDeviceCanAccessPeer, &possible, from, to));
    }
    *ret_reachable = possible != 0;
    return EMM_OK;
}

// A context of the device to copy from: one of the program's, or the primary one, kept from then
// on. It gets no manager.
emm_status context_to_copy_from(const driver::Driver &driver, int32_t device,
                                emm_context **ret_context) {
    if (emm_context *const found = find_source(device)) {
        *ret_context = found;
        return EMM_OK;
    }
    CUcontext primary = nullptr;
    unsigned long long id = 0;
    EMM_TRY(EMM_DRIVER_CALL(driver, cuDevicePrimaryCtxRetain, &primary, device));
    emm_status status = EMM_DRIVER_CALL(driver, cuCtxGetId, primary, &id);
    if (status == EMM_OK) {
        auto made = std::make_unique<emm_context>(driver, primary, id, core::DeferredLimits{});
        status = core::identify(*made);
        if (status == EMM_OK) {
            const std::lock_guard lock(devices().mutex);
            devices().sources.push_back(made.get());
            *ret_context = made.release();
            return EMM_OK;
        }
    }
    driver.cuDevicePrimaryCtxRelease(device);
    return status;
}

// If there is no direct way, the driver copies through host memory.
emm_status copy(const emm_context &to, emm_deviceptr target, const emm_context &from,
                emm_deviceptr source, size_t size, bool *ret_ended) noexcept {
    const driver::Driver &driver = to.driver;
    const driver::Current current(driver, to.cuda_context, to.id);
    EMM_TRY(current.status());
    const driver::RelaxedCapture relaxed(driver);
    EMM_TRY(EMM_DRIVER_CALL(driver, cuMemcpyPeer, target, to.cuda_context, source,
                            from.cuda_context, size));
    CUresult result = driver.cuStreamSynchronize(CU_STREAM_LEGACY);
    if (result != CUDA_SUCCESS) {
        // The source must stay until the copy has ended.
        *ret_ended = driver.cuCtxSynchronize() == CUDA_SUCCESS;
        return driver::fail(result, "cuStreamSynchronize");
    }
    return EMM_OK;
}

// If the export lies on a device whose memory the context cannot use, the import is a copy in
// memory of the context's own manager. The copy is the caller's, and independent of the export.
emm_status open_copy(emm_context &source, emm_context &context, const emm_ipc_handle &handle,
                     emm_memory **ret_memory, const void *caller) {
    core::Import *import = nullptr;
    emm_deviceptr base = 0;
    EMM_TRY(open_import(source, handle, &import, &base));
    bool ended = true;
    emm_memory *memory = nullptr;
    emm_status status =
        core::make_device(context, handle.size, EMM_STREAM_UNORDERED, &memory, caller);
    if (status >= EMM_OK) {
        const emm_status copied =
            copy(context, memory->ptr, source, base + handle.offset, handle.size, &ended);
        status = copied == EMM_OK ? status : copied;
    }
    const observe::Preserved said;
    if (ended) {
        import->close();
    } // else it is closed when its context ends
    if (status < EMM_OK) {
        if (memory) {
            core::release(*memory, caller);
        }
        return status;
    }
    *ret_memory = memory;
    return status;
}

emm_status open_on(emm_context &context, int32_t device, const emm_ipc_handle &handle,
                   emm_memory **ret_memory, const void *caller) {
    emm_context *source = nullptr;
    EMM_TRY(context_to_copy_from(context.driver, device, &source));
    return open_copy(*source, context, handle, ret_memory, caller);
}

emm_status open_here(emm_memory &made, const emm_ipc_handle &handle) {
    emm_deviceptr base = 0;
    const emm_status status = open_import(*made.context, handle, &made.import, &base);
    made.ptr = base + handle.offset;
    return status;
}

emm_status check_and_open(emm_context &context, const emm_ipc_handle &handle,
                          emm_memory **ret_memory, const void *caller) {
    int32_t device = context.device;
    bool reachable = true;
    EMM_TRY(core::admit_or_wait(context));
    EMM_TRY(check_handle(handle));
    EMM_TRY(check_exporter(handle.nonce));
    EMM_TRY(find_device(context, handle, &device));
    EMM_TRY(check_liveness(handle));
    if (device != context.device) {
        EMM_TRY(can_reach(context.driver, context.device, device, &reachable));
    }
    return reachable ? core::make_import(context, handle, &open_here, ret_memory)
                     : open_on(context, device, handle, ret_memory, caller);
}

} // namespace

emm_status open_handle(emm_context &context, const emm_ipc_handle &handle, emm_memory **ret_memory,
                       const void *caller) noexcept {
    return observe::with_memory("no host memory to open an export", [&] {
        return check_and_open(context, handle, ret_memory, caller);
    });
}

} // namespace emm::sharing

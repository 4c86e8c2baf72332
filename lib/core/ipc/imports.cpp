#include "core/ipc/imports.h"

#include "core/counters.h"
#include "core/ipc/descriptors.h"
#include "core/ipc/pooled.h"
#include "observe/error.h"
#include "observe/immortal.h"

#include <condition_variable>
#include <cstring>
#include <list>
#include <mutex>
#include <new>
#include <utility>

namespace emm::core::ipc {

struct Import {
    emm_context *context;
    uint32_t kind;
    uint8_t handle[64];
    uint8_t nonce[16];
    emm_deviceptr base = 0;
    Mapping mapping; // of parts
    uint32_t count = 1;
    bool settled = false; // else a thread is opening or closing it, without the lock
    bool ended = false;   // the driver did not close it, or not all of it
};

namespace {

using List = std::list<Import>;

struct Imports {
    std::mutex mutex;
    std::condition_variable has_settled;
    List all;
};

Imports &imports() {
    static observe::Immortal<Imports> the_imports;
    return the_imports.value;
}

bool is_of(const Import &import, const emm_ipc_handle &handle) {
    return import.kind == handle.kind &&
           std::memcmp(import.handle, handle.handle, sizeof import.handle) == 0 &&
           std::memcmp(import.nonce, handle.nonce, sizeof import.nonce) == 0;
}

// CUDA opens a legacy handle once for a device, and a pool's allocation once for a process. Parts
// can be mapped for each context.
bool shares(const Import &import, const emm_context &context) {
    switch (import.kind) {
    case EMM_IPC_FILE_DESCRIPTOR:
        return import.context == &context;
    case EMM_IPC_POOL:
        return true;
    default:
        return import.context->device == context.device;
    }
}

// The opening of the same export that this context would share, once nobody works on it.
Import *find(std::unique_lock<std::mutex> &lock, const emm_context &context,
             const emm_ipc_handle &handle) {
    for (;;) {
        Import *found = nullptr;
        for (Import &each : imports().all) {
            found = is_of(each, handle) && shares(each, context) ? &each : found;
        }
        if (!found || found->settled) {
            return found;
        }
        imports().has_settled.wait(lock);
    }
}

void remove(Import &import) {
    const std::lock_guard lock(imports().mutex);
    imports().all.remove_if([&](const Import &each) { return &each == &import; });
    imports().has_settled.notify_all();
}

emm_status open_legacy(const emm_context &context, Import &import) {
    const driver::Driver &driver = context.driver;
    const driver::Current current(driver, context.cuda_context, context.id);
    if (current.result() != CUDA_SUCCESS) {
        return driver::fail(current.result(), "making the context current");
    }
    const driver::RelaxedCapture relaxed(driver);
    CUipcMemHandle handle;
    std::memcpy(&handle, import.handle, sizeof handle);
    CUdeviceptr base = 0;
    const CUresult result =
        driver.cuIpcOpenMemHandle(&base, handle, CU_IPC_MEM_LAZY_ENABLE_PEER_ACCESS);
    import.base = base;
    return result == CUDA_SUCCESS ? EMM_OK : driver::fail(result, "cuIpcOpenMemHandle");
}

emm_status open_parts(const emm_context &context, const emm_ipc_handle &handle, Import &import) {
    try {
        const emm_status status = handle.kind == EMM_IPC_POOL
                                      ? map_pooled(context, handle, &import.mapping)
                                      : map_export(context, handle, &import.mapping);
        import.base = import.mapping.base;
        return status;
    } catch (const std::bad_alloc &) {
        return observe::fail(EMM_E_OUT_OF_HOST_MEMORY, 0, "no memory to note an export's parts");
    }
}

emm_status close_legacy(const Import &import) noexcept {
    const emm_context &context = *import.context;
    const driver::Current current(context.driver, context.cuda_context, context.id);
    CUresult result = current.result();
    if (result == CUDA_SUCCESS) {
        const driver::RelaxedCapture relaxed(context.driver);
        result = context.driver.cuIpcCloseMemHandle(import.base);
    }
    if (driver::is_late(result)) {
        ++counters().late_frees;
        return EMM_OK;
    }
    return result == CUDA_SUCCESS ? EMM_OK : driver::fail(result, "cuIpcCloseMemHandle");
}

emm_status refuse_second(const emm_context &context, const emm_context &first, uint32_t kind) {
    return observe::fail(EMM_E_BUSY, 0,
                         std::string("an export may be open in one context of a ") +
                             (kind == EMM_IPC_POOL ? "process" : "device") + ": expected " +
                             name_of(first) + ", which has it open, found " + name_of(context));
}

emm_status close_now(Import &import) noexcept {
    return import.kind == EMM_IPC_LEGACY ? close_legacy(import)
                                         : unmap_export(*import.context, import.mapping);
}

// What the driver does not close is tried again before it is opened anew, and at the end of its
// context.
emm_status close_or_keep(Import &import) noexcept {
    const emm_status status = close_now(import);
    if (status >= EMM_OK) {
        remove(import);
        return status;
    }
    const std::lock_guard lock(imports().mutex);
    import.settled = import.ended = true;
    imports().has_settled.notify_all();
    return status;
}

// The opening of the same export that can be shared, if any.
emm_status find_open(std::unique_lock<std::mutex> &lock, const emm_context &context,
                     const emm_ipc_handle &handle, Import *&ret_import) {
    for (;;) {
        ret_import = find(lock, context, handle);
        if (!ret_import || !ret_import->ended) {
            return EMM_OK;
        }
        ret_import->settled = false;
        lock.unlock();
        const emm_status status = close_or_keep(*ret_import);
        lock.lock();
        if (status < EMM_OK) {
            return status;
        }
    }
}

} // namespace

emm_status open_import(emm_context &context, const emm_ipc_handle &handle, Import **ret_import,
                       emm_deviceptr *ret_base) {
    std::unique_lock lock(imports().mutex);
    Import *found = nullptr;
    if (const emm_status status = find_open(lock, context, handle, found); status < EMM_OK) {
        return status;
    }
    if (found) {
        if (found->context->id != context.id) {
            return refuse_second(context, *found->context, handle.kind);
        }
        ++found->count;
        *ret_import = found;
        *ret_base = found->base;
        return EMM_OK;
    }
    Import &made = imports().all.emplace_back();
    made.context = &context;
    made.kind = handle.kind;
    std::memcpy(made.handle, handle.handle, sizeof made.handle);
    std::memcpy(made.nonce, handle.nonce, sizeof made.nonce);
    lock.unlock();
    const emm_status status = handle.kind == EMM_IPC_LEGACY ? open_legacy(context, made)
                                                            : open_parts(context, handle, made);
    if (status != EMM_OK) {
        remove(made);
        return status;
    }
    lock.lock();
    made.settled = true;
    imports().has_settled.notify_all();
    *ret_import = &made;
    *ret_base = made.base;
    return EMM_OK;
}

emm_status close_import(Import &import) noexcept {
    {
        const std::lock_guard lock(imports().mutex);
        if (--import.count != 0) {
            return EMM_OK;
        }
        import.settled = false;
    }
    return close_or_keep(import);
}

void close_imports(emm_context &context) noexcept {
    for (;;) {
        Import *found = nullptr;
        {
            const std::lock_guard lock(imports().mutex);
            for (Import &each : imports().all) {
                found = each.context == &context && each.settled ? &each : found;
            }
            if (!found) {
                return;
            }
            found->settled = false;
        }
        close_now(*found);
        remove(*found);
    }
}

} // namespace emm::core::ipc

#include "sharing/importer/importer.h"

#include "observe/error.h"
#include "observe/process.h"
#include "sharing/importer/connection.h"
#include "sharing/importer/mapping.h"

#include <algorithm>
#include <chrono>
#include <condition_variable>
#include <cstring>
#include <list>
#include <mutex>
#include <thread>

namespace emm::sharing {
namespace {

struct Import final : core::Import {
    emm_status close() noexcept override;

    emm_context *context;
    emm_ipc_handle handle; // the handle that opened it
    Mapping mapping;
    uint32_t count = 1;
    bool is_idle = false; // false: a thread is opening or closing it, without the lock
    bool ended = false;   // the driver did not close it completely
    uint64_t pass = 0;    // the last pass of close_imports that tried it
};

using List = std::list<Import>;

struct Imports {
    std::mutex mutex;
    std::condition_variable has_settled;
    List all;
    uint64_t passes = 0;
};

constexpr auto &imports = observe::immortal<Imports>;

// Whether the driver uses the same name for both. Views of an allocation, and allocations that
// share a block, are exports of their own with one mapping.
bool has_name(const Import &import, const emm_ipc_handle &handle) {
    constexpr size_t process = 8;
    return import.handle.kind == handle.kind &&
           std::memcmp(import.handle.handle, handle.handle, sizeof handle.handle) == 0 &&
           std::memcmp(import.handle.nonce, handle.nonce, process) == 0;
}

// Whether this import is of the same export. The exporter may have freed the old memory and reused
// its name.
bool is_of(const Import &import, const emm_ipc_handle &handle) {
    return std::memcmp(import.handle.nonce, handle.nonce, sizeof handle.nonce) == 0;
}

// The handle states the export's size, but any program of this user may have written the handle.
emm_status check_size(const emm_ipc_handle &handle, uint64_t mapped) {
    return handle.exported_size <= mapped
               ? EMM_OK
               : observe::refuse("an IPC handle's exported size: expected at most the {} bytes "
                                 "that are mapped, found {}",
                                 mapped, handle.exported_size);
}

// CUDA opens a legacy handle once for a device, and a pool's allocation once for a process. Mapped
// parts can be opened in each context.
bool shares(const Import &import, const emm_context &context) {
    switch (import.handle.kind) {
    case EMM_IPC_FILE_DESCRIPTOR:
        return import.context == &context;
    case EMM_IPC_POOL:
        return true;
    default:
        return import.context->device == context.device;
    }
}

// The import of the same export that this context would share. Waits until no thread works on it.
Import *find(std::unique_lock<std::mutex> &lock, const emm_context &context,
             const emm_ipc_handle &handle) {
    for (;;) {
        Import *found = nullptr;
        for (Import &each : imports().all) {
            found = has_name(each, handle) && shares(each, context) ? &each : found;
        }
        if (!found || found->is_idle) {
            return found;
        }
        imports().has_settled.wait(lock);
    }
}

void remove(Import &import) {
    forget_pooled(import.mapping);
    const std::lock_guard lock(imports().mutex);
    imports().all.remove_if([&](const Import &each) { return &each == &import; });
    imports().has_settled.notify_all();
}

// The exporter has answered for its parts. CUDA's own handles need a check: their memory may have
// ended after the look at the liveness socket, and be other memory by now.
emm_status check_opened(const emm_context &context, const emm_ipc_handle &handle, Import &import) {
    EMM_TRY(measure(context, import.mapping));
    EMM_TRY(check_size(handle, import.mapping.size));
    return handle.kind == EMM_IPC_FILE_DESCRIPTOR ? EMM_OK : check_liveness(handle);
}

// The driver blames the handle, but the exporter may just have ended. A killed process loses its
// resources one by one, its liveness socket perhaps after its export. So if the driver does not
// know the export, the socket is watched for 50 ms.
emm_status explain_failure(const emm_ipc_handle &handle, emm_status status) {
    if (handle.kind == EMM_IPC_FILE_DESCRIPTOR || status == EMM_E_NOT_OWNED ||
        status == EMM_E_BUSY) {
        return status;
    }
    observe::ErrorDetail said = observe::last_detail();
    const int looks = said.driver_result == CUDA_ERROR_INVALID_VALUE ? 10 : 1;
    for (int look = 0; look < looks; ++look) {
        if (look != 0) {
            std::this_thread::sleep_for(std::chrono::milliseconds(5));
        }
        if (const emm_status goes_on = check_liveness(handle); goes_on == EMM_E_NOT_OWNED) {
            return goes_on;
        }
    }
    return observe::fail(std::move(said));
}

// After a failure `ret_opened` says whether something must be closed.
emm_status open_checked(const emm_context &context, const emm_ipc_handle &handle, Import &import,
                        bool &ret_opened) noexcept {
    return observe::with_memory("no host memory to open an export", [&] {
        const emm_status status = map_export(context, handle, &import.mapping);
        ret_opened = status == EMM_OK;
        return ret_opened ? check_opened(context, handle, import) : explain_failure(handle, status);
    });
}

emm_status refuse_stale() {
    return observe::fail(
        EMM_E_BUSY, 0, "an export: its name is still open here for freed memory; close that first");
}

emm_status refuse_second(const emm_context &context, const emm_context &first, uint32_t kind) {
    return observe::fail(
        EMM_E_BUSY, 0,
        "an export may be open in only one context of a {}, and {} has it open, not {}",
        kind == EMM_IPC_POOL ? "process" : "device", first, context);
}

// If the driver refuses to close an import, it is asked again before the next opening, and at the
// end of the context.
emm_status close_or_keep(Import &import) noexcept {
    const emm_status status = unmap_export(*import.context, import.mapping);
    if (status >= EMM_OK) {
        remove(import);
        return status;
    }
    const std::lock_guard lock(imports().mutex);
    import.is_idle = import.ended = true;
    imports().has_settled.notify_all();
    return status;
}

// An existing import of the same export that can be shared, if any.
emm_status find_open(std::unique_lock<std::mutex> &lock, const emm_context &context,
                     const emm_ipc_handle &handle, Import *&ret_import) {
    for (;;) {
        ret_import = find(lock, context, handle);
        if (!ret_import || !ret_import->ended) {
            return EMM_OK;
        }
        ret_import->is_idle = false;
        lock.unlock();
        const emm_status status = close_or_keep(*ret_import);
        lock.lock();
        if (status < EMM_OK) {
            return status;
        }
    }
}

} // namespace

emm_status open_import(emm_context &context, const emm_ipc_handle &handle,
                       core::Import **ret_import, emm_deviceptr *ret_base) {
    std::unique_lock lock(imports().mutex);
    Import *found = nullptr;
    EMM_TRY(find_open(lock, context, handle, found));
    if (found) {
        if (found->context != &context) { // also another pool's, whose reset would close it
            return refuse_second(context, *found->context, handle.kind);
        }
        if (!is_of(*found, handle)) {
            return refuse_stale();
        }
        EMM_TRY(check_size(handle, found->mapping.size));
        ++found->count;
        *ret_import = found;
        *ret_base = found->mapping.base;
        return EMM_OK;
    }
    Import &made = imports().all.emplace_back();
    made.context = &context;
    made.handle = handle;
    lock.unlock();
    bool opened = false;
    const emm_status status = open_checked(context, handle, made, opened);
    if (status != EMM_OK) {
        const observe::Preserved said;
        opened ? void(close_or_keep(made)) : remove(made);
        return status;
    }
    lock.lock();
    made.is_idle = true;
    imports().has_settled.notify_all();
    *ret_import = &made;
    *ret_base = made.mapping.base;
    return EMM_OK;
}

emm_status Import::close() noexcept {
    {
        const std::lock_guard lock(imports().mutex);
        if (--count != 0) {
            return EMM_OK;
        }
        is_idle = false;
    }
    return close_or_keep(*this);
}

// Waits for imports that other threads are opening: they may have been granted less than is
// announced now.
void set_imports_access(const emm_context &context, int32_t device, uint32_t flags) {
    std::unique_lock lock(imports().mutex);
    imports().has_settled.wait(lock, [&] {
        return std::all_of(imports().all.begin(), imports().all.end(), [&](const Import &each) {
            return each.context != &context || each.is_idle;
        });
    });
    for (const Import &each : imports().all) {
        if (each.context == &context && !each.ended) {
            set_peer_access(context, each.mapping, device, flags);
        }
    }
}

// Closes each import once, including remains of contexts that have ended.
void close_imports(emm_context &context) noexcept {
    std::unique_lock lock(imports().mutex);
    const uint64_t pass = ++imports().passes;
    for (;;) {
        Import *found = nullptr;
        for (Import &each : imports().all) {
            const bool is_due =
                each.context == &context || (each.ended && !core::is_served(*each.context));
            const bool is_next = is_due && each.is_idle && each.pass != pass;
            found = is_next ? &each : found;
        }
        if (!found) {
            return;
        }
        found->is_idle = false;
        found->pass = pass;
        lock.unlock();
        close_or_keep(*found);
        lock.lock();
    }
}

} // namespace emm::sharing

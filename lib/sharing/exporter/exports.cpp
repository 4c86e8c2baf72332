#include "sharing/exporter/exporter.h"

#include "core/handles/handle.h"
#include "core/memory/call.h"
#include "core/record/asleep.h"
#include "observe/error.h"
#include "observe/process.h"
#include "sharing/handle/stamp.h"
#include "sharing/handle/wire.h"

#include <atomic>
#include <cstring>
#include <map>
#include <mutex>
#include <tuple>
#include <utility>

namespace emm::sharing {
namespace {

struct Export {
    emm_context *context;
    emm_memory *memory; // the export holds a reference
    emm_deviceptr ptr;
    size_t size;
    emm_ipc_handle handle;
    uint32_t count; // 0: the plugin has refused to release it
};

using ByGeneration = std::map<uint64_t, Export>;
using Part = std::tuple<const emm_memory *, emm_deviceptr, size_t>;

Part part_of(const Export &its) {
    return {its.memory, its.ptr, its.size};
}

struct Exports {
    std::mutex mutex;
    ByGeneration all;
    std::map<Part, Export *> of_handles; // exports of a handle's memory
};

constexpr auto &exports = observe::immortal<Exports>;

// Needs no host memory. The mutex is held.
ByGeneration::node_type take_out(ByGeneration::iterator its) noexcept {
    auto &of_handles = exports().of_handles;
    const auto found = of_handles.find(part_of(its->second));
    if (found != of_handles.end() && found->second == &its->second) {
        of_handles.erase(found);
    }
    return exports().all.extract(its);
}

bool find_again(const Export &wanted, emm_ipc_handle *ret_handle) {
    const std::lock_guard lock(exports().mutex);
    const auto found = exports().of_handles.find(part_of(wanted));
    if (found == exports().of_handles.end()) {
        return false;
    }
    ++found->second->count;
    *ret_handle = found->second->handle;
    return true;
}

// Makes sure that importers can ask this process, and numbers a new export. The number is never 0:
// it counts from a random number, as plugin.h says.
emm_status number_export(uint64_t *ret_generation) {
    static constinit RandomOnce random;
    static std::atomic<uint64_t> count{0};
    uint8_t bytes[8];
    uint64_t first = 0;
    EMM_TRY(random.get(bytes));
    EMM_TRY(start_serving());
    std::memcpy(&first, bytes, sizeof first);
    *ret_generation = (first + count++) | UINT64_C(1) << 63;
    return EMM_OK;
}

// Releases everything that an export holds besides its record.
void release_memory(const Export &ended) noexcept {
    if (ended.memory) {
        ended.memory->exports.fetch_sub(1, std::memory_order_release);
        core::release(*ended.memory, nullptr);
    }
}

emm_status stamp_and_publish(Export &made) {
    const bool served =
        made.handle.kind == EMM_IPC_FILE_DESCRIPTOR || made.handle.kind == EMM_IPC_POOL;
    made.handle.generation = 0;
    EMM_TRY(number_export(&made.handle.generation));
    if (served) {
        EMM_TRY(publish_export(*made.context, made.handle));
    }
    return stamp(*made.context, made.ptr, made.handle);
}

emm_status add(const Export &made, emm_ipc_handle *ret_handle) {
    emm_context &context = *made.context;
    ByGeneration entry{{0, made}};
    Export &entered = entry.begin()->second;
    std::map<Part, Export *> of_handle;
    if (made.memory) {
        of_handle.emplace(part_of(made), &entered);
    }
    core::Filled<emm_ipc_handle> filled;
    const auto ask = [&] {
        return EMM_CALL(context, get_ipc_handle, made.ptr, made.size, filled.out());
    };
    emm_status status = core::ask_awake(ask(), ask);
    status = filled.check_overrun(context, status, "get_ipc_handle");
    entered.handle = *filled.out();
    EMM_TRY(status);
    status = observe::with_memory("no host memory to sign an export",
                                  [&] { return stamp_and_publish(entered); });
    if (status != EMM_OK) {
        const observe::Preserved said;
        const emm_ipc_handle *const unused = &entered.handle;
        EMM_CALL_END(context, release_ipc_handle, unused);
        return status;
    }
    if (made.memory) {
        made.memory->references.fetch_add(1, std::memory_order_relaxed);
        made.memory->exports.fetch_add(1, std::memory_order_release);
    }
    *ret_handle = entered.handle;
    auto node = entry.extract(entry.begin());
    node.key() = ret_handle->generation;
    const std::lock_guard lock(exports().mutex);
    exports().all.insert(std::move(node));
    exports().of_handles.merge(of_handle); // another thread's export of the same part stays
    return EMM_OK;
}

} // namespace

emm_status get_handle(emm_context &context, emm_memory *memory, emm_deviceptr ptr, size_t size,
                      emm_ipc_handle *ret_handle) noexcept {
    const Export wanted = {&context, memory, ptr, size, {}, 1};
    if (find_again(wanted, ret_handle)) {
        return EMM_OK;
    }
    return observe::with_memory("no host memory to record an export",
                                [&] { return add(wanted, ret_handle); });
}

emm_status export_memory(emm_memory &memory, emm_ipc_handle *ret_handle) noexcept {
    emm_context &context = *memory.context;
    emm_memory &all = memory.parent ? *memory.parent : memory;
    EMM_TRY(core::admit_or_wait(context));
    if (memory.kind != EMM_KIND_DEVICE) {
        return observe::fail(EMM_E_NOT_SUPPORTED, 0,
                             "an export: expected device memory that emm allocated, found kind {}",
                             memory.kind);
    }
    if (memory.size == 0) {
        return observe::fail(EMM_E_INVALID_VALUE, 0, "an export: the memory has 0 bytes");
    }
    if (all.freed.load(std::memory_order_acquire)) {
        return observe::fail(EMM_E_ALREADY_FREED, 0, emm_status_text(EMM_E_ALREADY_FREED));
    }
    const core::HandleCall call(context.epoch);
    if (call.epoch() != all.epoch) {
        return observe::fail(EMM_E_NOT_OWNED, 0,
                             "an export: the memory was dropped when its context was reset");
    }
    return get_handle(context, &all, memory.ptr, memory.size, ret_handle);
}

bool find_export(const emm_ipc_name &name, emm_ipc_handle *ret_handle) noexcept {
    const std::lock_guard lock(exports().mutex);
    const auto found = exports().all.find(handle_of(name).generation);
    if (found == exports().all.end() || found->second.count == 0 ||
        !is_same(write_name(found->second.handle).bytes, name.bytes)) {
        return false;
    }
    *ret_handle = found->second.handle;
    return true;
}

emm_status release_handle(emm_context &context, const emm_ipc_handle &handle) noexcept {
    ByGeneration::node_type ended;
    {
        const std::lock_guard lock(exports().mutex);
        const auto found = exports().all.find(handle.generation);
        if (found != exports().all.end() && found->second.context == &context &&
            std::memcmp(&found->second.handle, &handle, sizeof handle) == 0) {
            uint32_t &count = found->second.count;
            if (count != 0 && --count != 0) {
                return EMM_OK;
            }
            ended = take_out(found);
        }
    }
    if (ended.empty()) {
        return observe::fail(EMM_E_NOT_OWNED, 0,
                             "{} does not export this IPC handle: it was released or dropped by a "
                             "reset, or belongs to another context",
                             context);
    }
    // Importers learn that the export has ended before its memory may become another allocation's.
    const emm_ipc_handle *const exported = &ended.mapped().handle;
    const emm_status status = EMM_CALL(context, release_ipc_handle, exported);
    if (status < EMM_OK && status != EMM_E_NOT_OWNED) {
        // No importer can open the export any more, but the plugin still has it.
        const std::lock_guard lock(exports().mutex);
        exports().all.insert(std::move(ended));
        return status;
    }
    release_memory(ended.mapped());
    return status;
}

void end_exports(emm_context &context) noexcept {
    ByGeneration ended;
    {
        const std::lock_guard lock(exports().mutex);
        auto &all = exports().all;
        for (auto each = all.begin(); each != all.end();) {
            const auto next = std::next(each);
            if (each->second.context == &context) {
                ended.insert(take_out(each));
            }
            each = next;
        }
    }
    for (const auto &[generation, each] : ended) {
        release_memory(each);
    }
}

namespace {

emm_status check_size(size_t size, uint64_t left, const char *whose) {
    if (size <= left) {
        return EMM_OK;
    }
    return observe::refuse(
        "an export's size: expected at most the {} bytes that its {} has left, found {}", left,
        whose, size);
}

// The driver knows every block in the process, including freed and pending ones. Only a plugin with
// `query` can say which blocks are live and its own.
emm_status check_owned(emm_context &context, emm_deviceptr ptr, size_t size) {
    if (context.selection->plugin->defaults(loader::Slot::query)) {
        return EMM_OK;
    }
    auto info = observe::sized<emm_block_info>();
    EMM_TRY(EMM_CALL(context, query, ptr, &info));
    return check_size(size, info.base + info.size - ptr, "allocation");
}

emm_status fail_to_find(CUresult result, emm_deviceptr ptr) {
    if (result != CUDA_ERROR_NOT_FOUND && result != CUDA_ERROR_INVALID_VALUE) {
        return driver::fail(result, "cuMemGetAddressRange");
    }
    return observe::fail(EMM_E_NOT_OWNED, result,
                         "an export: {:#x} is not in device memory of this context", ptr);
}

} // namespace

// A CUDA handle names the whole block of cuMemAlloc, so the offset travels beside it.
emm_status get_legacy_handle(emm_context &context, emm_deviceptr ptr, size_t size,
                             emm_ipc_handle *ret_handle) {
    EMM_TRY(check_owned(context, ptr, size));
    const driver::Driver &driver = context.driver;
    const driver::Current current(driver, context.cuda_context, context.id);
    EMM_TRY(current.status());
    const driver::RelaxedCapture relaxed(driver);
    CUdeviceptr base = 0;
    size_t bytes = 0;
    CUresult result = driver.cuMemGetAddressRange(&base, &bytes, ptr);
    if (result != CUDA_SUCCESS) {
        return fail_to_find(result, ptr);
    }
    EMM_TRY(check_size(size, bytes - (ptr - base), "block"));
    CUipcMemHandle handle;
    result = driver.cuIpcGetMemHandle(&handle, base);
    if (result == CUDA_ERROR_INVALID_VALUE) {
        return observe::fail(EMM_E_NOT_SUPPORTED, result,
                             "cuIpcGetMemHandle takes only memory from cuMemAlloc, and this is "
                             "other memory; passthrough and pool:growth=segment use cuMemAlloc");
    }
    EMM_TRY(driver::check(result, "cuIpcGetMemHandle"));
    emm_ipc_handle made = {};
    made.kind = EMM_IPC_LEGACY;
    std::memcpy(made.handle, &handle, sizeof made.handle);
    made.offset = ptr - base;
    made.size = size;
    made.exported_size = bytes;
    *ret_handle = made;
    return EMM_OK;
}

} // namespace emm::sharing

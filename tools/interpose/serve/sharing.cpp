#include "sharing.h"

#include "result.h"

#include <cstring>

namespace emm::run {
namespace {

// Import ids begin here: the driver's ids count from 1, those of own allocations from before_ids.
constexpr uint64_t before_import_ids = uint64_t(1) << 61;

bool is_same_name(const emm_ipc_name &a, const emm_ipc_name &b) {
    return std::memcmp(&a, &b, sizeof a) == 0;
}

// Describes the memory behind an import's handle. False: the import is a copy, in which no process
// sees the other's writes.
bool describe(emm_memory *handle, Allocation &ret_memory) {
    auto info = sized<emm_memory_info>();
    if (emm_memory_get_info(handle, &info) < 0 || info.kind != EMM_KIND_IPC) {
        return false;
    }
    ret_memory.address = info.ptr;
    ret_memory.size = info.size;
    return true;
}

bool is_of_kind_to_export(const Allocation &allocation) {
    return !allocation.pool &&
           allocation.is_one_of(uint32_t(Kind::device) | uint32_t(Kind::ordered));
}

} // namespace

// --- exports -----------------------------------------------------------------------------------

emm_status Sharing::make_export(const Allocation &allocation, Export &made) {
    emm_status status =
        emm_get_ipc_handle(allocation.context, allocation.address, allocation.size, &made.handle);
    if (status < 0) {
        return status;
    }
    status = emm_ipc_name_of(&made.handle, &made.name);
    if (status >= 0 && !allocations_.set_exported(allocation.address, allocation.id)) {
        status = EMM_E_NOT_OWNED; // another thread has freed it meanwhile
    }
    if (status < 0) {
        emm_release_ipc_handle(allocation.context, &made.handle);
        return status;
    }
    made.context = allocation.context;
    return EMM_OK;
}

emm_status Sharing::export_memory(const Allocation &allocation, emm_ipc_name &ret_name) {
    if (!is_of_kind_to_export(allocation)) {
        return EMM_E_NOT_SUPPORTED;
    }
    const std::lock_guard lock(exports_mutex_);
    Export &found = exports_[allocation.id];
    const emm_status status = found.context ? EMM_OK : make_export(allocation, found);
    if (status < 0) {
        exports_.erase(allocation.id);
        return status;
    }
    ret_name = found.name;
    return EMM_OK;
}

// Holds the mutex, so that no other thread gets the export's name, and a free waits for its end.
bool Sharing::can_export(const Allocation &allocation) {
    if (!is_of_kind_to_export(allocation)) {
        return false;
    }
    const std::lock_guard lock(exports_mutex_);
    Export trial;
    if (exports_.count(allocation.id) != 0) {
        return true;
    }
    const emm_status status = make_export(allocation, trial);
    if (status >= 0) {
        emm_release_ipc_handle(trial.context, &trial.handle);
    }
    return status >= 0;
}

void Sharing::end_export(const Allocation &allocation) noexcept {
    std::map<uint64_t, Export>::node_type ended;
    {
        const std::lock_guard lock(exports_mutex_);
        ended = exports_.extract(allocation.id);
    }
    if (!ended.empty()) {
        emm_release_ipc_handle(ended.mapped().context, &ended.mapped().handle);
    }
}

bool Sharing::is_own(const emm_ipc_name &name) {
    const std::lock_guard lock(exports_mutex_);
    for (const auto &[id, each] : exports_) {
        if (is_same_name(each.name, name)) {
            return true;
        }
    }
    return false;
}

// --- imports -----------------------------------------------------------------------------------

Sharing::Import *Sharing::find(const emm_context *context, const emm_ipc_name &name) {
    for (Import &each : imports_) {
        if (each.memory.context == context && is_same_name(each.name, name)) {
            return &each;
        }
    }
    return nullptr;
}

bool Sharing::open_again(const emm_context *context, const emm_ipc_name &name,
                         CUdeviceptr *ret_ptr) {
    const std::lock_guard lock(imports_mutex_);
    Import *const found = find(context, name);
    if (found) {
        found->count++;
        *ret_ptr = found->memory.address;
    }
    return found;
}

// Another thread may have opened the same export meanwhile: then its import counts, and `opened`
// stays unused.
CUdeviceptr Sharing::keep(Imports &opened) noexcept {
    Import &made = opened.front();
    const std::lock_guard lock(imports_mutex_);
    if (Import *const found = find(made.memory.context, made.name)) {
        found->count++;
        return found->memory.address;
    }
    made.memory.id = before_import_ids + ++last_import_;
    imports_.splice(imports_.end(), opened);
    note_imports();
    return made.memory.address;
}

void Sharing::note_imports() noexcept {
    has_imports_.store(!imports_.empty(), std::memory_order_release);
}

// Refuses as the driver does: a handle of the process itself, of an export that has ended, or of an
// export that another context has open. A copy shares nothing, so it is refused too.
CUresult Sharing::open(emm_context *context, const emm_ipc_name &name, CUdeviceptr *ret_ptr) {
    if (open_again(context, name, ret_ptr)) {
        return CUDA_SUCCESS;
    }
    if (is_own(name)) {
        return CUDA_ERROR_INVALID_CONTEXT;
    }
    emm_ipc_handle handle = {};
    if (const emm_status status = emm_ipc_handle_from(&name, &handle); status < 0) {
        return status == EMM_E_BUSY ? CUDA_ERROR_MAP_FAILED : result_of(status);
    }
    Imports opened(1);
    Import &made = opened.front();
    made.name = name;
    made.memory.context = context;
    if (const emm_status status = emm_memory_open_ipc(context, &handle, &made.handle); status < 0) {
        return status == EMM_E_BUSY ? CUDA_ERROR_ALREADY_MAPPED : result_of(status);
    }
    if (!describe(made.handle, made.memory)) {
        emm_memory_release(made.handle);
        return CUDA_ERROR_MAP_FAILED;
    }
    *ret_ptr = keep(opened);
    if (!opened.empty()) {
        emm_memory_release(opened.front().handle);
    }
    return CUDA_SUCCESS;
}

bool Sharing::close(const emm_context *context, uint64_t address, CUresult &ret_result) noexcept {
    Imports ended;
    {
        const std::lock_guard lock(imports_mutex_);
        auto found = imports_.end();
        for (auto each = imports_.begin(); each != imports_.end(); ++each) {
            if (each->memory.address == address &&
                (found == imports_.end() || each->memory.context == context)) {
                found = each;
            }
        }
        if (found == imports_.end()) {
            return false;
        }
        if (--found->count == 0) {
            ended.splice(ended.end(), imports_, found);
            note_imports();
        }
    }
    const emm_status status = ended.empty() ? EMM_OK : emm_memory_release(ended.front().handle);
    ret_result = result_of(status);
    return true;
}

Allocation Sharing::around(uint64_t address) {
    if (!has_imports()) {
        return {};
    }
    const std::lock_guard lock(imports_mutex_);
    for (const Import &each : imports_) {
        if (each.memory.address <= address && address - each.memory.address < each.memory.size) {
            return each.memory;
        }
    }
    return {};
}

// --- the end of a context ----------------------------------------------------------------------

void Sharing::forget(const emm_context *context) noexcept {
    {
        const std::lock_guard lock(exports_mutex_);
        std::erase_if(exports_, [&](const auto &each) { return each.second.context == context; });
    }
    Imports ended;
    {
        const std::lock_guard lock(imports_mutex_);
        for (auto each = imports_.begin(); each != imports_.end();) {
            const auto next = std::next(each);
            if (each->memory.context == context) {
                ended.splice(ended.end(), imports_, each);
            }
            each = next;
        }
        note_imports();
    }
    for (const Import &each : ended) {
        emm_memory_release(each.handle);
    }
}

} // namespace emm::run

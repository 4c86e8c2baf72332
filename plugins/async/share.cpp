// Memory that other processes have open: the pool goes to them by file descriptor, which emm
// serves, and each allocation by a name in it. What is freed while it is exported is held back
// until its last export ends: an importer has to let go before the exporter does.
#include "async/manager.h"

#include <algorithm>
#include <cstring>
#include <utility>

namespace emm::async {
namespace {

bool is_same(const emm_ipc_handle &a, const emm_ipc_handle &b) {
    return a.offset == b.offset && a.size == b.size &&
           std::memcmp(a.handle, b.handle, sizeof a.handle) == 0;
}

void check_size(const emm_block_info &info, emm_deviceptr ptr, size_t size) {
    const uint64_t left = info.base + info.size - ptr;
    if (size > left) {
        common::refuse(EMM_E_INVALID_VALUE,
                       "async: an export's size: expected at most the %llu bytes that are left, "
                       "found %zu",
                       static_cast<unsigned long long>(left), size);
    }
}

// cuMemPoolImportPointer ends the importing process with a larger one: driver 580, 4 GiB go well,
// 6 GiB do not, in programs without emm too.
void check_importable(const emm_block_info &info) {
    constexpr uint64_t largest = uint64_t(4) << 30;
    if (info.size > largest) {
        common::refuse(EMM_E_NOT_SUPPORTED,
                       "async: an export: expected an allocation of at most %llu bytes, which CUDA "
                       "can import from a memory pool, found %llu; pool:growth=vmm shares larger "
                       "ones",
                       static_cast<unsigned long long>(largest),
                       static_cast<unsigned long long>(info.size));
    }
}

} // namespace

emm_status Manager::get_ipc_handle(emm_deviceptr ptr, size_t size, emm_ipc_handle *ret_handle) {
    if (!options_.ipc) {
        throw PluginError(EMM_E_NOT_SUPPORTED, 0,
                          "async: the pool is one that other processes cannot open; async:ipc=1 "
                          "makes one that they can");
    }
    const emm_block_info info = allocation_at(ptr);
    check_size(info, ptr, size);
    check_importable(info);
    CUmemPoolPtrExportData name = {};
    const emm_ipc_part part = {pool_.number(), 0};
    emm_ipc_source source = {};
    source.struct_size = sizeof source;
    source.kind = EMM_IPC_POOL;
    source.parts = &part;
    source.part_count = 1;
    source.offset = ptr - info.base;
    source.size = size;
    source.pointer = &name;
    driver_.check(driver_.cuMemPoolExportPointer(&name, info.base), "cuMemPoolExportPointer");
    emm_ipc_handle made = {};
    const emm_status status = host_.serve_ipc(context_, &source, &made);
    if (status == EMM_OK) {
        try {
            note_export(info.base, made);
        } catch (...) {
            host_.withdraw_ipc(context_, &made);
            throw;
        }
        *ret_handle = made;
    }
    return status;
}

void Manager::note_export(emm_deviceptr base, const emm_ipc_handle &handle) {
    std::lock_guard lock(shared_mutex_);
    const auto [place, is_new] = shared_.try_emplace(base);
    try {
        place->second.exports.push_back(handle);
    } catch (...) {
        if (is_new) {
            shared_.erase(place);
        }
        throw;
    }
    has_shared_ = true;
}

emm_status Manager::release_ipc_handle(const emm_ipc_handle *handle) {
    const emm_status status = host_.withdraw_ipc(context_, handle);
    if (Entry entry = end_export(*handle); !entry.empty()) {
        postpone(entry);
    }
    return status;
}

// What had been freed meanwhile, if that was its last export.
Manager::Entry Manager::end_export(const emm_ipc_handle &handle) {
    std::lock_guard lock(shared_mutex_);
    for (auto each = shared_.begin(); each != shared_.end(); ++each) {
        auto &exports = each->second.exports;
        const auto found = std::find_if(exports.begin(), exports.end(),
                                        [&](const auto &one) { return is_same(one, handle); });
        if (found == exports.end()) {
            continue;
        }
        exports.erase(found);
        if (!exports.empty()) {
            return {};
        }
        Entry freed = std::move(each->second.freed);
        shared_.erase(each);
        has_shared_ = !shared_.empty();
        return freed;
    }
    return {};
}

// True if the allocation is exported; `entry` is then kept until it is not.
bool Manager::hold_back(Entry &entry) {
    if (!has_shared_) {
        return false;
    }
    std::lock_guard lock(shared_mutex_);
    const auto found = shared_.find(entry.key());
    if (found == shared_.end()) {
        return false;
    }
    found->second.freed = std::move(entry);
    entry = {};
    return true;
}

// Of a reset: one after another, and with the last the exports are over.
Manager::Entry Manager::take_held_back() noexcept {
    std::lock_guard lock(shared_mutex_);
    for (auto &[ptr, shared] : shared_) {
        if (!shared.freed.empty()) {
            return std::exchange(shared.freed, {});
        }
    }
    shared_.clear();
    has_shared_ = false;
    return {};
}

} // namespace emm::async

// Memory that other processes have open. They get the pool by a file descriptor, which emm serves,
// and each allocation by a name in the pool.
#include "async/manager.h"

namespace emm::async {
namespace {

void check_size(const emm_block_info &info, emm_deviceptr ptr, size_t size) {
    const uint64_t left = info.base + info.size - ptr;
    if (size > left) {
        common::refuse(EMM_E_INVALID_VALUE,
                       "async: an export's size: expected at most the %llu bytes that its "
                       "allocation has left, found %zu",
                       static_cast<unsigned long long>(left), size);
    }
}

// For larger allocations cuMemPoolImportPointer ends the importing process: with driver 580, 4 GiB
// go well and 6 GiB do not, in programs without emm too.
void check_importable(const emm_block_info &info) {
    constexpr uint64_t largest = uint64_t(4) << 30;
    if (info.size > largest) {
        common::refuse(EMM_E_NOT_SUPPORTED,
                       "async: an export: CUDA imports allocations of at most %llu bytes from a "
                       "memory pool, and this one has %llu; pool:growth=vmm shares larger ones",
                       static_cast<unsigned long long>(largest),
                       static_cast<unsigned long long>(info.size));
    }
}

} // namespace

emm_status Manager::get_ipc_handle(emm_deviceptr ptr, size_t size, emm_ipc_handle *ret_handle) {
    if (!options_.ipc) {
        throw PluginError(EMM_E_NOT_SUPPORTED, 0,
                          "async: other processes cannot open this pool; async:ipc=1 makes a pool "
                          "that they can open");
    }
    const emm_block_info info = allocation_at(ptr);
    check_size(info, ptr, size);
    check_importable(info);
    CUmemPoolPtrExportData name = {};
    const emm_ipc_part part = {source_.number(), 0};
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
            exports_.note(info.base, made);
        } catch (...) {
            host_.withdraw_ipc(context_, &made);
            throw;
        }
        *ret_handle = made;
    }
    return status;
}

emm_status Manager::release_ipc_handle(const emm_ipc_handle *handle) {
    const emm_status status = host_.withdraw_ipc(context_, handle);
    if (Entry entry = exports_.end(*handle); !entry.empty()) {
        postpone(entry);
    }
    return status;
}

} // namespace emm::async

// The memory that the program shares with other processes by cuIpc*: its exports, each of which
// ends when the program frees the memory, and its open imports. Any thread may call.
#pragma once

#include "allocations.h"

#include <emm/emm.h>

#include <atomic>
#include <cuda.h>
#include <list>
#include <map>
#include <mutex>

namespace emm::run {

class Sharing {
public:
    explicit Sharing(Allocations &allocations) : allocations_(allocations) {}

    // The name of the allocation's export, which is made by the first call. Throws std::bad_alloc.
    //   EMM_E_NOT_SUPPORTED   it is managed memory, or the plugin does not export it
    emm_status export_memory(const Allocation &allocation, emm_ipc_name &ret_name);

    // Whether the allocation has an export, or can have one: makes one, and ends it at once. Throws
    // std::bad_alloc.
    bool can_export(const Allocation &allocation);

    // The allocation, which is `exported`, is about to be freed.
    void end_export(const Allocation &allocation) noexcept;

    // Opens another process's export, or counts one more opening in that context. Throws
    // std::bad_alloc.
    CUresult open(emm_context *context, const emm_ipc_name &name, CUdeviceptr *ret_ptr);

    // Counts one opening less, in the context if it has the memory open. False: no import of emm's
    // is at that address.
    bool close(const emm_context *context, uint64_t address, CUresult &ret_result) noexcept;

    // Whether any export of another process is open.
    bool has_imports() const { return has_imports_.load(std::memory_order_acquire); }

    // The open import that has `address` within it. If none has, `address` in the answer is 0.
    Allocation around(uint64_t address);

    // The context has ended, and emm has closed all its imports.
    void forget(const emm_context *context) noexcept;

private:
    struct Export {
        emm_context *context = nullptr; // NULL: not made yet
        emm_ipc_handle handle = {};
        emm_ipc_name name = {};
    };
    struct Import {
        Allocation memory;
        emm_memory *handle = nullptr;
        emm_ipc_name name = {};
        uint64_t count = 1;
    };
    using Imports = std::list<Import>;

    emm_status make_export(const Allocation &allocation, Export &made);
    bool is_own(const emm_ipc_name &name);
    Import *find(const emm_context *context, const emm_ipc_name &name); // the mutex is held
    bool open_again(const emm_context *context, const emm_ipc_name &name, CUdeviceptr *ret_ptr);
    CUdeviceptr keep(Imports &opened) noexcept;
    void note_imports() noexcept; // the mutex is held

    Allocations &allocations_;
    std::mutex exports_mutex_;           // held while an export is made
    std::map<uint64_t, Export> exports_; // by the allocation's id
    std::mutex imports_mutex_;
    Imports imports_;
    uint64_t last_import_ = 0;
    std::atomic<bool> has_imports_{false};
};

} // namespace emm::run

// What the program shares with other processes by cuIpc*: its exports, each of which ends when the
// program frees the memory, and what it has open of other processes'. Any thread may call.
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

    // Whether there is an export of it, or can be: one is made, and ended at once. Throws
    // std::bad_alloc.
    bool can_export(const Allocation &allocation);

    // The allocation is about to be freed. It is `exported`.
    void end_export(const Allocation &allocation) noexcept;

    // Opens what another process exports, or counts one opening more in that context. Throws
    // std::bad_alloc.
    CUresult open(emm_context *context, const emm_ipc_name &name, CUdeviceptr *ret_ptr);

    // One opening less, of the context's if it has one there. False: nothing of emm's is open at
    // that address.
    bool close(const emm_context *context, uint64_t address, CUresult &ret_result) noexcept;

    // Whether anything of other processes' is open.
    bool has_imports() const { return has_imports_.load(std::memory_order_acquire); }

    // What is open here and has `address` within it; `address` 0 in the answer: there is none.
    Allocation around(uint64_t address);

    // The context has ended, and emm has closed all in it.
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

#pragma once

#include "types.h"

#include <map>

namespace emm::torch_backend {

// The blocks that were exported to other processes. An export lasts as long as its block, and
// PyTorch keeps the block until the other process is done with it.
class Exports {
public:
    // The same block has the same handle each time: PyTorch looks tensors up by the handle.
    emm_ipc_handle begin(emm_context *context, void *ptr, size_t size) {
        Lock guard(lock_);
        auto found = handles_.find(ptr);
        if (found == handles_.end()) {
            emm_ipc_handle handle = {};
            TORCH_CHECK(emm_get_ipc_handle(context, address_of(ptr), size, &handle) >= EMM_OK,
                        "emm cannot share a tensor with another process: ", last_words());
            found = handles_.emplace(ptr, handle).first;
        }
        return found->second;
    }

    void end(emm_context *context, void *ptr) {
        Lock guard(lock_);
        auto found = handles_.find(ptr);
        if (found != handles_.end()) {
            emm_release_ipc_handle(context, &found->second);
            handles_.erase(found);
        }
    }

private:
    std::mutex lock_;
    std::map<void *, emm_ipc_handle> handles_;
};

} // namespace emm::torch_backend

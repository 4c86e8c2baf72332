#pragma once

#include "types.h"

#include <map>
#include <optional>
#include <utility>

namespace emm::torch_backend {

// The blocks that were exported to other processes. An export lasts as long as its block, and
// PyTorch keeps the block until the other process is done with it.
class Exports {
public:
    // The same block has the same handle each time: PyTorch looks tensors up by the handle.
    emm_ipc_handle begin(emm_context *context, void *ptr, size_t size) {
        if (const std::optional<emm_ipc_handle> known = find(ptr)) {
            return *known;
        }
        emm_ipc_handle made = {};
        TORCH_CHECK(emm_get_ipc_handle(context, address_of(ptr), size, &made) >= EMM_OK,
                    "emm cannot share a tensor with another process: ", last_words());
        const auto [kept, is_first] = keep(ptr, made);
        if (!is_first) { // another thread was quicker
            emm_release_ipc_handle(context, &made);
        }
        return kept;
    }

    void end(emm_context *context, void *ptr) {
        if (const std::optional<emm_ipc_handle> known = take(ptr)) {
            emm_release_ipc_handle(context, &*known);
        }
    }

private:
    std::optional<emm_ipc_handle> find(void *ptr) {
        Lock guard(lock_);
        const auto found = handles_.find(ptr);
        return found == handles_.end() ? std::nullopt : std::optional(found->second);
    }

    // The block's handle: `handle` (true), or one that was kept before.
    std::pair<emm_ipc_handle, bool> keep(void *ptr, const emm_ipc_handle &handle) {
        Lock guard(lock_);
        const auto [found, is_first] = handles_.emplace(ptr, handle);
        return {found->second, is_first};
    }

    std::optional<emm_ipc_handle> take(void *ptr) {
        Lock guard(lock_);
        const auto node = handles_.extract(ptr);
        return node.empty() ? std::nullopt : std::optional(node.mapped());
    }

    std::mutex lock_;
    std::map<void *, emm_ipc_handle> handles_;
};

} // namespace emm::torch_backend

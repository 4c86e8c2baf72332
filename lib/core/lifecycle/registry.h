#pragma once

#include "loader/plugin.h"

#include <emm/emm.h>

// The records of all contexts of the process.
namespace emm::core {

bool is_still_current(emm_context *&ret_context) noexcept; // quick; false: ask the next
emm_status context_current(emm_context *&ret_context);
emm_status context_from(CUctx_st *cuda_context, emm_context *&ret_context);
emm_status context_for_device(int32_t device, emm_context *&ret_context);

// Both by the one thread that owns the manager_lock: whether the context has no manager yet, and
// makes it and lets the context serve.
bool is_unserved(const emm_context &context) noexcept;
emm_status begin_serving(emm_context &context);

// Set by lib/monitor, which tells `emm top` what the process holds: a context is now served by
// `plugin`. From the first one on, the process can be asked.
using OnServing = void (*)(const loader::Plugin &plugin) noexcept;
inline constinit OnServing on_serving = nullptr;

// Shut down, or forked: nothing can be asked of this process any more.
emm_status admit_process() noexcept;

} // namespace emm::core

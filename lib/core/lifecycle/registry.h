#pragma once

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

// Every record, newest first; it is never shortened, so that it may be walked at any time.
emm_context *first_context() noexcept;

// Shut down, or forked: nothing can be asked of this process any more.
emm_status admit_process() noexcept;

} // namespace emm::core

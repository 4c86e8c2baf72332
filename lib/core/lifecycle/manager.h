#pragma once

#include "loader/plugin.h"

#include <emm/emm.h>
#include <emm/plugin.h>

// A manager's life: made for one context, reset, given up.

namespace emm::core {

// create and initialize. On success the context is ready to serve; its state flags are the
// caller's.
emm_status create_manager(emm_context &context, const loader::Selection &selection);

// Runs pending frees, destroys the manager and what the host's defaults hold.
void destroy_manager(emm_context &context) noexcept;

emm_status reset_manager(emm_context &context);

// Whether a reset makes a new manager, which is then told what the one before was.
bool begins_anew(const emm_context &context) noexcept;

// The services that plugins get. Lives as long as the process.
const emm_host &host();

} // namespace emm::core

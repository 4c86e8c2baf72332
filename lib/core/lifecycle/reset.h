#pragma once

#include <emm/emm.h>

namespace emm::core {

// emm_context_reset. A context whose last reset could not make a new manager gets one. `caller` is
// for the event log.
emm_status reset(emm_context &context, const void *caller);

} // namespace emm::core

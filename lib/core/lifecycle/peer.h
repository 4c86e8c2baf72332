#pragma once

#include <emm/emm.h>

namespace emm::core {

// emm_set_peer_access. What no plugin could do is refused here, so that each need not say it.
emm_status set_peer_access(emm_context &context, int32_t peer_device, uint32_t flags);

} // namespace emm::core

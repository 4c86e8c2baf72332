#pragma once

#include <emm/plugin.h>

namespace emm::tool {

// The entry of a plugin that is linked into the tool and does nothing: every block has the same
// address. What a pair costs with it is what its caller costs.
const emm_plugin *empty_plugin_entry(const emm_host *host);

} // namespace emm::tool

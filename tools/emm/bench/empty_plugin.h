#pragma once

#include <emm/plugin.h>

namespace emm::tool {

// The entry of a plugin that is linked into the tool and does nothing: every block has the same
// address. The cost of a pair with it is the cost of its caller.
const emm_plugin *empty_plugin_entry(const emm_host *host);

} // namespace emm::tool

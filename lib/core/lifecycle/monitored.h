#pragma once

#include "loader/plugin.h"

// What core asks of the layer above it, which tells `emm top` what the process holds: lib/monitor
// defines this. Core itself knows of no such tool.
namespace emm::monitor {

// A context is served by `plugin`: from the first one on, the process can be asked. Whatever stands
// in the way is logged and no failure.
void announce(const loader::Plugin &plugin) noexcept;

} // namespace emm::monitor

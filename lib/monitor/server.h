#pragma once

#include "loader/plugin.h"

namespace emm::monitor {

// A context is served by `plugin`: from the first one on, the process can be asked. Whatever stands
// in the way is logged and no failure.
void announce(const loader::Plugin &plugin) noexcept;

} // namespace emm::monitor

#pragma once

#include "loader/plugin.h"

namespace emm::monitor {

// Announces that `plugin` serves a context. From the first one on, the process can be asked.
// Obstacles are logged, and are no failure.
void announce(const loader::Plugin &plugin) noexcept;

} // namespace emm::monitor

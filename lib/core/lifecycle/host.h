#pragma once

#include <emm/plugin.h>

namespace emm::core {

// The services that plugins get. Lives as long as the process.
const emm_host &host();

} // namespace emm::core

#pragma once

#include <emm/emm.h>

namespace emm::core {

// Bytes in all for the contexts of a device, as the plugin in force tells without any of them.
emm_status device_total(int32_t device, size_t *ret_total);

} // namespace emm::core

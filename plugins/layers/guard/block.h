#pragma once

#include "layers/guard/caller.h"

#include <emm/plugin.h>

namespace emm::guard {

// A block from its allocation until its addresses are free again.
struct Block {
    emm_deviceptr ptr = 0;
    size_t size = 0;
    Caller allocated, freed;
    bool is_freed = false;
    bool used_elsewhere = false; // by record_use
};

} // namespace emm::guard

#pragma once

#include "core/record/sharing.h"

namespace emm::sharing {

// What core asks of this layer.
extern const core::Sharing for_core;

} // namespace emm::sharing

#pragma once

#include "catch.h"
#include "unit/answers.h"

#include <emm/emm.hpp>

inline emm_context *gpu() {
    return emm::context_for_device(0);
}

inline emm_stats stats() {
    return emm::stats(gpu());
}

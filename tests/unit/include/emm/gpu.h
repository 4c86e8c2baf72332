#pragma once

#include "catch.h"

#include <emm/emm.hpp>

inline emm_context *gpu() {
    return emm::context_for_device(0);
}

inline emm_stats stats() {
    emm_stats stats = {};
    stats.struct_size = sizeof stats;
    REQUIRE(emm_get_stats(gpu(), &stats) == EMM_OK);
    return stats;
}

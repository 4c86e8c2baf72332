#pragma once

#include "json.h"

#include <string>

namespace emm::tool {

struct InfoOptions {
    std::string spec; // empty: what is in force
    bool json = false;
};

// `emm info`: returns the exit status.
int run_info(const InfoOptions &options);

} // namespace emm::tool

#pragma once

#include <cstddef>
#include <cstdint>
#include <string>

namespace emm::tool {

// One measurement of one candidate.
struct Measurement {
    std::string name; // of the case
    uint32_t threads = 1;
    size_t size = 0;
};

} // namespace emm::tool

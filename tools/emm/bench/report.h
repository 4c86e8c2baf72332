#pragma once

#include "json.h"

#include <cstddef>
#include <cstdint>
#include <string>

namespace emm::tool {

// The table of `emm bench` for people, from the object that --json prints.
std::string bench_text(const Json &report);

// Nothing failed.
bool bench_is_good(const Json &report);

// One measurement of one candidate.
struct Measurement {
    std::string name; // of the case
    uint32_t threads = 1;
    size_t size = 0;
};

} // namespace emm::tool

#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace emm::tool {

struct BenchOptions {
    std::vector<std::string> plugins; // empty: what the environment names
    std::vector<std::string> cases;   // empty: all
    std::vector<uint32_t> threads = {1};
    std::vector<uint64_t> sizes; // empty: each case's own
    bool json = false;
};

} // namespace emm::tool

#pragma once

#include "json.h"

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

class Parent;

// `emm bench`: returns the exit status.
int run_bench(const BenchOptions &options);

// Its part in a process of its own: the measurements of one candidate.
void run_bench_job(const Json &job, Parent &parent);

} // namespace emm::tool

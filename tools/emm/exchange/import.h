#pragma once

#include <cstdint>
#include <optional>
#include <string>

namespace emm::tool {

struct ImportOptions {
    std::string file;   // - for standard input
    std::string from;   // torch-snapshot, rmm or kineto; empty: what the file begins with
    std::string output; // a file; empty: standard output
    std::optional<uint64_t> device;
    bool json = false;
};

// Makes a trace for `emm replay` out of what another program recorded. Returns the exit status;
// throws Failure.
int run_import(const ImportOptions &options);

} // namespace emm::tool

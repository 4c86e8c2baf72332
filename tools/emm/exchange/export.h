#pragma once

#include <cstdint>
#include <optional>
#include <string>

namespace emm::tool {

struct ExportOptions {
    std::string log;              // a file, - for standard input
    std::string to;               // torch-snapshot or chrome-trace
    std::string output;           // a file; empty: standard output
    std::optional<uint64_t> last; // events of a snapshot
    bool json = false;
};

// Writes an event log in a format of other tools. Returns the exit status; throws Failure.
int run_export(const ExportOptions &options);

} // namespace emm::tool

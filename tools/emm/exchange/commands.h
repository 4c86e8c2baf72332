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

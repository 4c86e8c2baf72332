#pragma once

#include <optional>
#include <string>
#include <vector>

namespace emm::tool {

struct ReportOptions {
    std::string input; // an event log or trace; - for standard input
    // The page; - for standard output. None: report.html, or with `json` no page.
    std::optional<std::string> output;
    std::string plugin;               // replayed for what the input does not tell; empty: none
    std::vector<std::string> compare; // several, side by side
    double limit = 120;               // seconds that a replay may be silent
    bool json = false;
};

// `emm report`: writes the page. Returns the exit status; throws Failure.
int run_report(const ReportOptions &options);

} // namespace emm::tool

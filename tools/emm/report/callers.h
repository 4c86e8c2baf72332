#pragma once

#include "exchange/timeline.h"

#include <cstdint>
#include <string>
#include <vector>

namespace emm::tool {

// Numbers texts; the first ones keep theirs.
class Labels {
public:
    uint32_t number_of(const std::string &text);
    std::vector<std::string> take() { return std::move(labels_); }

private:
    std::vector<std::string> labels_;
    std::unordered_map<std::string, uint32_t> numbers_;
};

// The caller of each call site: the program's own first line of Python outside of wrappers; else
// the compiled function, without its offset. "unknown" if the log does not tell.
//
// A wrapper is a function of the program with more lines that call it than lines that allocate: a
// helper `alloc()` that all of a program calls tells nothing, and its callers do. A function that
// calls a wrapper may be a wrapper too. If all functions of a call are wrappers, the outermost line
// counts.
struct Callers {
    Callers(const CallSites &sites);

    std::vector<std::string> labels;
    std::vector<uint32_t> of; // of each call site
    bool has_python = false;  // any of them has lines of Python

    const std::string &text(uint32_t site) const { return labels[of[site]]; }
};

// A text of a log, made fit to be shown: "unknown" for "".
std::string shown_label(const std::string &text);

// The tags of a call site, or that it has none.
std::string tag_label(const CallSite &site);

// f(int)+0x3 without the offset, and the library's file behind it.
std::string compiled_caller(const CallSite &site);

} // namespace emm::tool

// A program's cases: those that the command line names, or all.
#pragma once

#include <algorithm>
#include <cstdio>
#include <string>

namespace share {

// Why a case is skipped; empty: it passed.
using Outcome = std::string;

struct Case {
    const char *name;
    Outcome (*run)();
};

inline bool is_wanted(const Case &one, int argc, char *const *argv) {
    return argc <= 1 || std::find(argv + 1, argv + argc, std::string(one.name)) != argv + argc;
}

// Says so, too.
inline bool passes(const Case &one) {
    const Outcome skipped = one.run();
    std::printf("%s %s%s\n", one.name, skipped.empty() ? "passed" : "skipped: ", skipped.c_str());
    return skipped.empty();
}

} // namespace share

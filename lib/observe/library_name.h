#pragma once

#include <link.h>
#include <string>

namespace emm::observe {

// What dl_iterate_phdr tells of a library. The dynamic linker has written the name under a lock of
// its own, which the thread sanitizer does not see, so this reads it where that does not look.
__attribute__((noinline, no_sanitize("thread"))) inline std::string
library_name(const dl_phdr_info &info) {
    std::string name;
    for (const char *at = info.dlpi_name; at && *at != '\0'; at++) {
        name += *at;
    }
    return name;
}

} // namespace emm::observe

#include "dl/home.h"

#include <climits>
#include <cstdlib>
#include <dlfcn.h>
#include <unistd.h>

namespace emm::dl {
Home home_of(const void *address) {
    Home found;
    Dl_info info;
    if (!dladdr(address, &info) || !info.dli_fname) {
        return found;
    }
    // If the real path is unknown, the path that the dynamic linker has leads to the same folder.
    char real[PATH_MAX];
    found.folder = realpath(info.dli_fname, real) ? real : info.dli_fname;
    if (found.folder.front() != '/') {
        return {};
    }
    found.folder.erase(found.folder.find_last_of('/'));
    // Meson writes this file beside the library that it builds, and never installs it.
    found.build_tree = access((found.folder + "/emm-build-tree").c_str(), F_OK) == 0;
    return found;
}

const Home &home() {
    static const Home *const found = new Home(home_of(reinterpret_cast<void *>(&home)));
    return *found;
}

} // namespace emm::dl

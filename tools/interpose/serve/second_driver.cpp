#include "second_driver.h"

#include "../say.h"
#include "observe/read_write.h"
#include "result.h"

#include <atomic>
#include <climits>
#include <cstdlib>
#include <dlfcn.h>
#include <link.h>
#include <sstream>
#include <unistd.h>

namespace emm::run {
namespace {

constexpr const char *library = "/libcuda.so";

// A line: range, permissions, offset, device, inode, path.
struct Mapping {
    std::string offset, path;
};

Mapping mapping_of(const std::string &line) {
    std::istringstream words(line);
    std::string range, permissions, device, inode;
    Mapping mapping;
    words >> range >> permissions >> mapping.offset >> device >> inode >> std::ws;
    std::getline(words, mapping.path);
    return mapping;
}

bool is_beginning(const Mapping &mapping) {
    return mapping.offset.find_first_not_of('0') == std::string::npos;
}

bool is_libcuda(const std::string &path) {
    const size_t slash = path.rfind('/');
    return slash != std::string::npos &&
           path.compare(slash, std::string(library).size(), library) == 0;
}

// Without links, as the kernel shows paths.
std::string real_path(const char *path) {
    char real[PATH_MAX];
    return path && realpath(path, real) ? real : "";
}

std::string interposer_path() {
    Dl_info self = {};
    dladdr(reinterpret_cast<void *>(&report_second_driver), &self);
    const std::string own = real_path(self.dli_fname);
    return own.substr(0, own.rfind('/')) + "/libcuda.so.1";
}

} // namespace

std::string second_driver(const std::string &maps, const std::string &interposer,
                          const std::string &driver) {
    std::istringstream lines(maps);
    bool seen = false;
    for (std::string line; std::getline(lines, line);) {
        if (line.find(library) == std::string::npos) { // thousands, of a program on CUDA
            continue;
        }
        const Mapping mapping = mapping_of(line);
        if (!is_beginning(mapping) || !is_libcuda(mapping.path) || mapping.path == interposer) {
            continue;
        }
        if (mapping.path != driver || seen) {
            return mapping.path;
        }
        seen = true;
    }
    return "";
}

// The dynamic linker counts loaded libraries, of all namespaces together.
bool has_loaded_libraries() {
    static std::atomic<unsigned long long> known{0};
    unsigned long long loaded = 0;
    dl_iterate_phdr(
        [](dl_phdr_info *info, size_t, void *ret_loaded) {
            *static_cast<unsigned long long *>(ret_loaded) = info->dlpi_adds;
            return 1;
        },
        &loaded);
    return known.exchange(loaded) != loaded;
}

void report_second_driver() {
    static std::atomic<bool> said{false};
    auto info = sized<emm_driver_info>();
    if (said.load() || emm_get_driver(&info) < 0 || !has_loaded_libraries()) {
        return;
    }
    const std::string found = second_driver(observe::text_of_file("/proc/self/maps"),
                                            interposer_path(), real_path(info.path));
    if (!found.empty() && !said.exchange(true)) {
        say("the program has opened a second CUDA driver, %s, beside %s: emm does not serve memory "
            "from it; --audit redirects the path to emm",
            found.c_str(), info.path);
    }
}

} // namespace emm::run

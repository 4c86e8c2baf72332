#include "run/folder.h"

#include "dl/home.h"
#include "run/environment.h"
#include "run/refusal.h"

#include <algorithm>
#include <dlfcn.h>
#include <filesystem>
#include <fmt/ranges.h>
#include <vector>

namespace emm::tool {
namespace {

bool has_interposer(const std::string &folder) {
    std::error_code error;
    return std::filesystem::exists(folder + "/libcuda.so.1", error);
}

// The installed tree may have been moved; plugins may have a folder elsewhere.
std::vector<std::string> likely_folders() {
    const dl::Home home = dl::home_of(dlsym(RTLD_DEFAULT, "emm_version"));
    if (home.build_tree) {
        return {std::filesystem::path(home.folder).parent_path() / "tools/interpose"};
    }
    return {home.folder + "/emm/run", EMM_PLUGIN_DIR "/run"};
}

} // namespace

std::string find_run_folder() {
    const std::vector<std::string> likely = likely_folders();
    const auto found = std::find_if(likely.begin(), likely.end(), has_interposer);
    if (found == likely.end()) {
        throw Refusal(1, fmt::format("the interposer is missing: expected libcuda.so.1 in {}, "
                                     "found none",
                                     fmt::join(likely, " or ")));
    }
    const std::string folder = std::filesystem::canonical(*found).string();
    if (const char unfit = unfit_character(folder)) {
        throw Refusal(1, fmt::format("no library can be preloaded from {}: expected a path without "
                                     "' ', ':', ';' and '$', found '{}'",
                                     folder, unfit));
    }
    return folder;
}

} // namespace emm::tool

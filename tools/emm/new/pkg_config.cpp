#include "new/pkg_config.h"

#include <algorithm>
#include <filesystem>

namespace emm::tool {
namespace {

namespace fs = std::filesystem;

// lib/pkgconfig, lib64/pkgconfig, lib/x86_64-linux-gnu/pkgconfig or share/pkgconfig, below /usr or
// /usr/local.
bool is_of_the_system(const fs::path &folder) {
    const fs::path above = folder.parent_path();
    const bool has_triplet = above.parent_path().filename() == "lib";
    const fs::path library = has_triplet ? above.parent_path() : above;
    const std::string name = library.filename().string();
    const fs::path prefix = library.parent_path();
    return folder.filename() == "pkgconfig" && (prefix == "/usr" || prefix == "/usr/local") &&
           (name == "lib" || name == "lib64" || name == "share");
}

} // namespace

std::string pkg_config_folder(const dl::Home &home) {
    const fs::path library = home.folder;
    const fs::path folder =
        home.build_tree ? library.parent_path() / "meson-uninstalled" : library / "pkgconfig";
    const fs::path file = folder / (home.build_tree ? "emm-uninstalled.pc" : "emm.pc");
    std::error_code error;
    return fs::exists(file, error) ? folder.string() : "";
}

bool is_searched(std::string_view folder, std::string_view pkg_config_path) {
    while (!pkg_config_path.empty()) {
        const size_t end = std::min(pkg_config_path.find(':'), pkg_config_path.size());
        if (fs::path(pkg_config_path.substr(0, end)).lexically_normal() == folder) {
            return true;
        }
        pkg_config_path.remove_prefix(std::min(end + 1, pkg_config_path.size()));
    }
    return is_of_the_system(folder);
}

} // namespace emm::tool

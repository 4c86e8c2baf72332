#include "new/pkg_config.h"

#include "new/cmake_prefix.h"

#include <algorithm>
#include <filesystem>

namespace emm::tool {
namespace {

namespace fs = std::filesystem;

// lib/pkgconfig, lib64/pkgconfig, lib/x86_64-linux-gnu/pkgconfig or share/pkgconfig, below /usr or
// /usr/local.
bool is_of_the_system(const fs::path &folder) {
    const fs::path above = folder.parent_path();
    const fs::path prefix = above.filename() == "share" ? above.parent_path() : prefix_of(above);
    return folder.filename() == "pkgconfig" && is_prefix_of_the_system(prefix);
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

bool has_folder(std::string_view folders, std::string_view folder) {
    while (!folders.empty()) {
        const size_t end = std::min(folders.find(':'), folders.size());
        const fs::path found = fs::path(folders.substr(0, end)).lexically_normal();
        if ((found.has_filename() ? found : found.parent_path()) == folder) {
            return true;
        }
        folders.remove_prefix(std::min(end + 1, folders.size()));
    }
    return false;
}

bool is_searched(std::string_view folder, std::string_view pkg_config_path) {
    return is_of_the_system(folder) || has_folder(pkg_config_path, folder);
}

} // namespace emm::tool

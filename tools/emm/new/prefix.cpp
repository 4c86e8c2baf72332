#include "new/prefix.h"

#include "observe/text.h"

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
    const std::vector<std::string> all = observe::split(folders, ':');
    return std::any_of(all.begin(), all.end(), [&](const std::string &one) {
        const fs::path found = fs::path(one).lexically_normal();
        return (found.has_filename() ? found : found.parent_path()) == folder;
    });
}

bool is_searched(std::string_view folder, std::string_view pkg_config_path) {
    return is_of_the_system(folder) || has_folder(pkg_config_path, folder);
}

namespace fs = std::filesystem;

fs::path prefix_of(const fs::path &library) {
    if (library.parent_path().filename() == "lib") {
        return library.parent_path().parent_path();
    }
    const std::string name = library.filename().string();
    return name == "lib" || name == "lib64" ? library.parent_path() : fs::path();
}

bool is_prefix_of_the_system(const fs::path &prefix) {
    return prefix == "/usr" || prefix == "/usr/local";
}

std::string cmake_prefix(const dl::Home &home) {
    const fs::path folder = fs::path(home.folder) / "cmake/emm";
    std::error_code error;
    if (!fs::exists(folder / "emm-config.cmake", error)) {
        return "";
    }
    const fs::path prefix = prefix_of(home.folder);
    return prefix.empty() ? folder.string() : prefix.string();
}

bool is_searched_by_cmake(const std::string &prefix, std::string_view cmake_prefix_path,
                          std::string_view path) {
    return is_prefix_of_the_system(prefix) || has_folder(cmake_prefix_path, prefix) ||
           has_folder(path, prefix + "/bin");
}

} // namespace emm::tool

#include "new/cmake_prefix.h"

#include "new/pkg_config.h"

namespace emm::tool {

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

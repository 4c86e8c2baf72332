#pragma once

#include "dl/home.h"

#include <filesystem>
#include <string>
#include <string_view>

namespace emm::tool {

// The folder of the emm.pc that comes with the library there; "" if it has none.
std::string pkg_config_folder(const dl::Home &home);

// Whether `folders`, separated by ':', has this one.
bool has_folder(std::string_view folders, std::string_view folder);

// Whether pkg-config looks there: PKG_CONFIG_PATH has the folder, or it is one of the system's.
bool is_searched(std::string_view folder, std::string_view pkg_config_path);

// PREFIX of PREFIX/lib, PREFIX/lib64 or PREFIX/lib/TRIPLET; "" if `library` is none of them.
std::filesystem::path prefix_of(const std::filesystem::path &library);

bool is_prefix_of_the_system(const std::filesystem::path &prefix);

// What CMAKE_PREFIX_PATH names, so that find_package(emm) finds the emm of the library there; "" if
// that has no files for CMake, as in a build folder.
std::string cmake_prefix(const dl::Home &home);

// Whether find_package looks there: CMAKE_PREFIX_PATH has the prefix, PATH its bin, or it is one of
// the system's.
bool is_searched_by_cmake(const std::string &prefix, std::string_view cmake_prefix_path,
                          std::string_view path);

} // namespace emm::tool

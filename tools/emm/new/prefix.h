#pragma once

#include "dl/home.h"

#include <filesystem>
#include <string>
#include <string_view>

namespace emm::tool {

// The folder of the emm.pc that belongs to the library in `home`; "": there is no such emm.pc.
std::string pkg_config_folder(const dl::Home &home);

// Whether `folders`, separated by ':', has `folder`.
bool has_folder(std::string_view folders, std::string_view folder);

// Whether pkg-config looks in the folder: PKG_CONFIG_PATH has it, or it is one of the system's.
bool is_searched(std::string_view folder, std::string_view pkg_config_path);

// PREFIX of PREFIX/lib, PREFIX/lib64 or PREFIX/lib/TRIPLET; "": `library` has no such form.
std::filesystem::path prefix_of(const std::filesystem::path &library);

bool is_prefix_of_the_system(const std::filesystem::path &prefix);

// The CMAKE_PREFIX_PATH with which find_package(emm) finds the emm of the library there; "" if no
// files for CMake belong to the library, as in a build folder.
std::string cmake_prefix(const dl::Home &home);

// Whether find_package looks in the prefix: CMAKE_PREFIX_PATH has it, PATH has its bin, or it is
// one of the system's.
bool is_searched_by_cmake(const std::string &prefix, std::string_view cmake_prefix_path,
                          std::string_view path);

} // namespace emm::tool

#pragma once

#include "dl/home.h"

#include <string>
#include <string_view>

namespace emm::tool {

// The folder of the emm.pc that comes with the library there; "" if it has none.
std::string pkg_config_folder(const dl::Home &home);

// Whether `folders`, separated by ':', has this one.
bool has_folder(std::string_view folders, std::string_view folder);

// Whether pkg-config looks there: PKG_CONFIG_PATH has the folder, or it is one of the system's.
bool is_searched(std::string_view folder, std::string_view pkg_config_path);

} // namespace emm::tool

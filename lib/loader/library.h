#pragma once

#include <emm/plugin.h>

#include <string>

namespace emm::loader {

// Maps the library and finds the entry function that it exports itself. The library stays mapped
// until the process ends, whatever happens next.
emm_status open_library(const std::string &path, emm_plugin_entry &ret_entry);

} // namespace emm::loader

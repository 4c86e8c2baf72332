#pragma once

#include "driver/shared_group.h"

#include <string>

namespace emm::tool {

// Opens the file of an existing group, without joining. Members that have ended then hold nothing.
// Gives "" or the failure; `ret_path` is "" if the name is at fault.
std::string open_group(const std::string &name, driver::GroupFile &ret_file, std::string &ret_path);

} // namespace emm::tool

#pragma once

#include "driver/shared_group.h"

#include <string>

namespace emm::tool {

// Opens the file of a group that there is, without joining. Members that have ended hold nothing
// any more then. "" or what is wrong; `ret_path` is "" if it is the name.
std::string open_group(const std::string &name, driver::GroupFile &ret_file, std::string &ret_path);

} // namespace emm::tool

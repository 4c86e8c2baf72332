#pragma once

#include <string>

namespace emm::tool {

// The whole file, unpacked by the gzip program if it is in gzip format. Throws Failure.
std::string read_file(const std::string &path);

} // namespace emm::tool

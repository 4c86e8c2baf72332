#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace emm::tool {

// As RFC 4648 has it, for the page's atob().
std::string in_base64(const std::vector<uint8_t> &bytes);

} // namespace emm::tool

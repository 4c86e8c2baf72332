#pragma once

#include <nlohmann/json_fwd.hpp>

#include <string>

namespace emm::tool {

// Keys stay in the order in which they are documented.
using Json = nlohmann::ordered_json;

// Text from plugins and file names need not be UTF-8; other bytes are replaced. Control characters
// are escaped, also those beyond ASCII, so that no terminal obeys them.
std::string dump(const Json &json, int indent = -1);

Json text_or_null(const std::string &text); // null: the text is empty

} // namespace emm::tool

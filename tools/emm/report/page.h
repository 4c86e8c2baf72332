#pragma once

#include "exchange/output.h"
#include "json.h"

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace emm::tool {

// JSON that may stand in a script element of HTML, whatever its texts: ASCII, without < > &.
std::string script_json(const Json &json);

// The whole page; it needs no other file.
void write_page(Output &output, const Json &document);

// The page that the build has made from page/: the parts before and behind its data.
std::string_view page_before_data();
std::string_view page_behind_data();

// In the form of RFC 4648, for the page's atob().
std::string in_base64(const std::vector<uint8_t> &bytes);

} // namespace emm::tool

#pragma once

#include "exchange/output.h"
#include "json.h"

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace emm::tool {

// JSON that may stand in a script element of HTML, whatever its texts are: ASCII, without < > &.
std::string script_json(const Json &json);

// The whole page; it needs no other file.
void write_page(Output &output, const Json &document);

// The page as the build has put it together out of page/, in front of its data and behind them.
std::string_view page_before_data();
std::string_view page_behind_data();

// As RFC 4648 has it, for the page's atob().
std::string in_base64(const std::vector<uint8_t> &bytes);

} // namespace emm::tool

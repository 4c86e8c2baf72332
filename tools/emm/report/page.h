#pragma once

#include "exchange/output.h"
#include "json.h"

#include <string>

namespace emm::tool {

// JSON that may stand in a script element of HTML, whatever its texts are: ASCII, without < > &.
std::string script_json(const Json &json);

// The whole page; it needs no other file.
void write_page(Output &output, const Json &document);

} // namespace emm::tool

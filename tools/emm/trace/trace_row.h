#pragma once

#include "trace/builder.h"

#include <string_view>

namespace emm::tool {

// The first line of a trace.
inline constexpr std::string_view trace_first_line = "time,thread,stream,op,id,size";

// One of the lines that follow. Throws Malformed.
Row trace_row(std::string_view line);

} // namespace emm::tool

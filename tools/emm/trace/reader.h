#pragma once

#include "trace/builder.h"

#include <functional>
#include <string>
#include <string_view>

namespace emm::tool {

// Reads `time,thread,stream,op,id,size` or an event log, plain or gzip. Throws Failure, which names
// the file, the line, what was expected and what was found. `name` is what messages call the file,
// if that is not its path. `report` is told every now and then how much has been read, from 0 to 1.
using ReadReport = std::function<void(double share)>;
Trace read_trace(const std::string &path, const std::string &name = "",
                 const ReadReport &report = {});

// The same for text that is in memory already; `path` is for messages.
Trace parse_trace(std::string_view text, const std::string &path);

// The log of a program, completed first if that was killed. It may have no events.
Trace read_event_log(const std::string &path, bool &ret_was_incomplete,
                     const ReadReport &report = {});

// The first line of a trace.
inline constexpr std::string_view trace_first_line = "time,thread,stream,op,id,size";

// One of the lines that follow. Throws Malformed.
Row trace_row(std::string_view line);

} // namespace emm::tool

#pragma once

#include "trace/builder.h"

#include <functional>
#include <string>
#include <string_view>

namespace emm::tool {

// Reads `time,thread,stream,op,id,size` or an event log, plain or gzip. Throws Failure, which names
// the file, the line, the expected and the found text. `name` is the file's name in messages, if
// that is not its path. `report` is told now and then the share that has been read, from 0 to 1.
using ReadReport = std::function<void(double share)>;
Trace read_trace(const std::string &path, const std::string &name = "",
                 const ReadReport &report = {});

// The same for text in memory; `path` is for messages.
Trace parse_trace(std::string_view text, const std::string &path);

// The log of a program, completed first if the program was killed. It may have no events.
Trace read_event_log(const std::string &path, bool &ret_was_incomplete,
                     const ReadReport &report = {});

// The first line of a trace.
inline constexpr std::string_view trace_first_line = "time,thread,stream,op,id,size";

// A line behind the first. Throws Malformed.
Row trace_row(std::string_view line);

} // namespace emm::tool

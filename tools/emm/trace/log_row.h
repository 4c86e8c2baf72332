#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <string_view>

namespace emm::tool {

// A row of an event log (EMM_EVENT_LOG). All functions throw Malformed.
inline constexpr size_t log_columns = 13;
using LogFields = std::array<std::string_view, log_columns>;

// The context is "" in logs from before there was such a column.
LogFields log_fields(std::string_view line);

// What was called.
struct LogCall {
    std::string_view type;
    uint64_t device, address, stream, size, context;
};
LogCall log_call(const LogFields &fields);

// The rest of a row. Times are nanoseconds since the log was opened.
struct LogDetails {
    uint64_t free, total, start, end;
};
LogDetails log_details(const LogFields &fields);

uint64_t log_start(const LogFields &fields);

// Who called, without quotes.
std::string log_location(const LogFields &fields);

} // namespace emm::tool

#pragma once

#include "trace/builder.h"

#include <array>
#include <cstdint>
#include <string>
#include <string_view>
#include <unordered_map>

namespace emm::tool {

// A row of an event log (EMM_EVENT_LOG). These functions throw Malformed.
inline constexpr size_t log_columns = 13;
using LogFields = std::array<std::string_view, log_columns>;

// The context is "" in older logs, which lack that column.
LogFields log_fields(std::string_view line);

// The call in a row of the log.
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

// How a row of this type drops all blocks of its context.
Drop drop_of(std::string_view type);

// Completes the log of a program that was killed; true: the log was incomplete. Throws Failure.
bool complete_event_log(const std::string &path);

// Whether it is the first line of an event log, with the column Context or, in older logs, without.
bool is_event_log(std::string_view first_line);

// Reads the rows of an event log (EMM_EVENT_LOG) as a program of one thread: the log does not tell
// threads apart. Device memory is replayed; failures, late frees and other memory become marks.
class EventLogReader {
public:
    explicit EventLogReader(TraceBuilder &builder) : builder_(builder) {}
    void add(std::string_view line);

private:
    struct Live {
        int64_t id;
        uint64_t device, context, stream, size;
    };

    void allocated(uint64_t address, const Live &block);
    void freed(std::unordered_map<uint64_t, Live>::iterator block, uint64_t stream,
               Drop drop = Drop::none);
    void drop_all(uint64_t device, uint64_t context, Drop drop);
    void section(Op op);

    TraceBuilder &builder_;
    int64_t next_id_ = 0;
    uint64_t time_ = 0;
    uint64_t depth_ = 0; // of deferred sections
    std::unordered_map<uint64_t, Live> live_;
};

} // namespace emm::tool

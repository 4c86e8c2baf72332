#include "trace/reader.h"

#include "print.h"
#include "progress.h"
#include "trace/event_log.h"
#include "trace/file.h"

#include <algorithm>
#include <array>
#include <charconv>

namespace emm::tool {
namespace {

constexpr size_t trace_columns = 6;

using TraceFields = std::array<std::string_view, trace_columns>;

TraceFields split(std::string_view line) {
    TraceFields fields;
    size_t count = 0, begin = 0;
    while (begin <= line.size()) {
        const size_t end = std::min(line.find(',', begin), line.size());
        if (count < trace_columns) {
            fields[count] = line.substr(begin, end - begin);
        }
        count++;
        begin = end + 1;
    }
    if (count != trace_columns) {
        throw Malformed("6 fields, " + std::string(trace_first_line),
                        std::to_string(count) + " in " + in_quotes(line));
    }
    return fields;
}

template <class Number> Number number(std::string_view text, const char *what) {
    Number value = 0;
    const char *end = text.data() + text.size();
    const auto [stopped, error] = std::from_chars(text.data(), end, value);
    if (error != std::errc() || stopped != end) {
        throw Malformed(std::string("a whole number for ") + what, in_quotes(text));
    }
    return value;
}

Op op_of(std::string_view text) {
    for (const Op op : {Op::alloc, Op::free, Op::mark, Op::defer_begin, Op::defer_end}) {
        if (text == name_of(op)) {
            return op;
        }
    }
    throw Malformed("alloc, free, mark, defer_begin or defer_end", in_quotes(text));
}

Trace parse(LineFile &file, const std::string &name, bool may_be_empty, const ReadReport &report) {
    TraceBuilder builder;
    EventLogReader log(builder);
    Pace pace;
    const auto now_and_then = [&](double share) {
        if (report && pace.is_due()) {
            report(share);
        }
    };
    return file.where_it_is([&] {
        const std::string first(file.first());
        const bool is_log = is_event_log(first);
        if (!is_log && first != trace_first_line) {
            throw Malformed("the header " + std::string(trace_first_line) +
                                " or that of an event log",
                            in_quotes(first));
        }
        file.each(
            [&](std::string_view line) { is_log ? log.add(line) : builder.add(trace_row(line)); },
            now_and_then);
        return is_log && may_be_empty && builder.is_empty() ? Trace() : builder.finish(name);
    });
}

Trace read_file(const std::string &path, const std::string &name, bool may_be_empty,
                const ReadReport &report) {
    LineFile file(path, name);
    return parse(file, name, may_be_empty, report);
}

} // namespace

Row trace_row(std::string_view line) {
    const TraceFields fields = split(line);
    Row row;
    row.time = number<uint64_t>(fields[0], "time");
    row.thread = number<uint64_t>(fields[1], "thread");
    row.stream = number<uint64_t>(fields[2], "stream");
    row.op = op_of(fields[3]);
    row.id = number<int64_t>(fields[4], "id");
    row.size = number<uint64_t>(fields[5], "size");
    return row;
}

Trace parse_trace(std::string_view text, const std::string &path) {
    LineFile file(std::nullopt, path, text);
    return parse(file, path, false, {});
}

Trace read_trace(const std::string &path, const std::string &name, const ReadReport &report) {
    complete_event_log(path);
    return read_file(path, name.empty() ? path : name, false, report);
}

Trace read_event_log(const std::string &path, bool &ret_was_incomplete, const ReadReport &report) {
    ret_was_incomplete = complete_event_log(path);
    return read_file(path, path, true, report);
}

} // namespace emm::tool

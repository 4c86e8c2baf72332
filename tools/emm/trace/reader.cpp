#include "trace/reader.h"

#include "print.h"
#include "problem.h"
#include "progress.h"
#include "trace/event_log.h"
#include "trace/file.h"

#include <algorithm>
#include <array>
#include <charconv>
#include <functional>
#include <optional>

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

// The next line without its end; nothing at the end of the text.
std::optional<std::string_view> take_line(std::string_view &rest) {
    if (rest.empty()) {
        return std::nullopt;
    }
    const size_t end = std::min(rest.find('\n'), rest.size());
    const std::string_view line = rest.substr(0, end);
    rest.remove_prefix(std::min(end + 1, rest.size()));
    return line;
}

Failure refusal(const Malformed &malformed, const std::string &path, size_t line) {
    return Failure({.stage = "trace",
                    .message = path + ", line " + std::to_string(line) + ": " + malformed.what(),
                    .path = path,
                    .expected = malformed.expected,
                    .got = malformed.got});
}

using NextLine = std::function<std::optional<std::string_view>()>;

// Without a final carriage return.
std::string_view bare(std::string_view line) {
    return line.substr(0, line.size() - (!line.empty() && line.back() == '\r'));
}

Trace parse(const NextLine &next, const std::string &path, bool may_be_empty) {
    TraceBuilder builder;
    size_t line_number = 1;
    try {
        const std::string first(bare(next().value_or("")));
        const bool is_log = is_event_log(first);
        if (!is_log && first != trace_first_line) {
            throw Malformed("the header " + std::string(trace_first_line) +
                                " or that of an event log",
                            in_quotes(first));
        }
        EventLogReader log(builder);
        for (line_number++; const std::optional<std::string_view> line = next(); line_number++) {
            if (!bare(*line).empty() && is_log) {
                log.add(bare(*line));
            } else if (!bare(*line).empty()) {
                builder.add(trace_row(bare(*line)));
            }
        }
        line_number--; // the last one
        return is_log && may_be_empty && builder.is_empty() ? Trace() : builder.finish(path);
    } catch (const Malformed &malformed) {
        throw refusal(malformed, path, line_number);
    }
}

Trace read_file(const std::string &path, const std::string &name, bool may_be_empty,
                const ReadReport &report) {
    constexpr uint64_t between_looks = 4096; // lines
    LineFile file(path, name);
    Pace pace;
    uint64_t lines = 0;
    const auto next = [&] {
        if (report && lines++ % between_looks == 0 && pace.is_due()) {
            report(file.share());
        }
        return file.next();
    };
    return parse(next, name, may_be_empty);
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
    return parse([&] { return take_line(text); }, path, false);
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

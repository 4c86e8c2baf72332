#include "trace/reader.h"

#include "problem.h"
#include "trace/builder.h"
#include "trace/event_log.h"
#include "trace/file.h"

#include <array>
#include <charconv>
#include <optional>

namespace emm::tool {
namespace {

constexpr std::string_view header = "time,thread,stream,op,id,size";
constexpr size_t columns = 6;

using Fields = std::array<std::string_view, columns>;

std::string quoted(std::string_view text) {
    constexpr size_t longest = 60;
    return "'" + std::string(text.substr(0, longest)) + (text.size() > longest ? "...'" : "'");
}

Fields split(std::string_view line) {
    Fields fields;
    size_t count = 0, begin = 0;
    while (begin <= line.size()) {
        const size_t end = std::min(line.find(',', begin), line.size());
        if (count < columns) {
            fields[count] = line.substr(begin, end - begin);
        }
        count++;
        begin = end + 1;
    }
    if (count != columns) {
        throw Malformed("6 fields, " + std::string(header),
                        std::to_string(count) + " in " + quoted(line));
    }
    return fields;
}

template <class Number> Number number(std::string_view text, const char *what) {
    Number value = 0;
    const char *end = text.data() + text.size();
    const auto [stopped, error] = std::from_chars(text.data(), end, value);
    if (error != std::errc() || stopped != end) {
        throw Malformed(std::string("a whole number for ") + what, quoted(text));
    }
    return value;
}

Op op_of(std::string_view text) {
    for (const Op op : {Op::alloc, Op::free, Op::mark, Op::defer_begin, Op::defer_end}) {
        if (text == name_of(op)) {
            return op;
        }
    }
    throw Malformed("alloc, free, mark, defer_begin or defer_end", quoted(text));
}

Row row_of(std::string_view line) {
    const Fields fields = split(line);
    Row row;
    row.time = number<uint64_t>(fields[0], "time");
    row.thread = number<uint64_t>(fields[1], "thread");
    row.stream = number<uint64_t>(fields[2], "stream");
    row.op = op_of(fields[3]);
    row.id = number<int64_t>(fields[4], "id");
    row.size = number<uint64_t>(fields[5], "size");
    return row;
}

// The next line without its end; nothing at the end of the text.
std::optional<std::string_view> take_line(std::string_view &rest) {
    if (rest.empty()) {
        return std::nullopt;
    }
    const size_t end = std::min(rest.find('\n'), rest.size());
    std::string_view line = rest.substr(0, end);
    rest.remove_prefix(std::min(end + 1, rest.size()));
    if (!line.empty() && line.back() == '\r') {
        line.remove_suffix(1);
    }
    return line;
}

Failure refusal(const Malformed &malformed, const std::string &path, size_t line) {
    Problem problem;
    problem.stage = "trace";
    problem.path = path;
    problem.expected = malformed.expected;
    problem.got = malformed.got;
    problem.message = path + ", line " + std::to_string(line) + ": " + malformed.what();
    return Failure(problem);
}

} // namespace

Trace parse_trace(std::string_view text, const std::string &path) {
    TraceBuilder builder;
    size_t line_number = 1;
    try {
        const std::string_view first = take_line(text).value_or("");
        const bool is_log = first == EventLogReader::header;
        if (!is_log && first != header) {
            throw Malformed("the header " + std::string(header) + " or that of an event log",
                            quoted(first));
        }
        EventLogReader log(builder);
        while (const std::optional<std::string_view> line = take_line(text)) {
            line_number++;
            if (!line->empty() && is_log) {
                log.add(*line);
            } else if (!line->empty()) {
                builder.add(row_of(*line));
            }
        }
        return builder.finish(path);
    } catch (const Malformed &malformed) {
        throw refusal(malformed, path, line_number);
    }
}

Trace read_trace(const std::string &path) {
    complete_event_log(path);
    return parse_trace(read_file(path), path);
}

} // namespace emm::tool

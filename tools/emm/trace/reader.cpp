#include "trace/reader.h"

#include "problem.h"
#include "text.h"
#include "trace/builder.h"
#include "trace/event_log.h"
#include "trace/file.h"

#include <array>
#include <charconv>
#include <functional>
#include <optional>

namespace emm::tool {
namespace {

constexpr std::string_view header = "time,thread,stream,op,id,size";
constexpr size_t columns = 6;

using Fields = std::array<std::string_view, columns>;

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
    const std::string_view line = rest.substr(0, end);
    rest.remove_prefix(std::min(end + 1, rest.size()));
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
        const bool is_log = first == EventLogReader::header;
        if (!is_log && first != header) {
            throw Malformed("the header " + std::string(header) + " or that of an event log",
                            in_quotes(first));
        }
        EventLogReader log(builder);
        for (line_number++; const std::optional<std::string_view> line = next(); line_number++) {
            if (!bare(*line).empty() && is_log) {
                log.add(bare(*line));
            } else if (!bare(*line).empty()) {
                builder.add(row_of(bare(*line)));
            }
        }
        line_number--; // the last one
        return is_log && may_be_empty && builder.is_empty() ? Trace() : builder.finish(path);
    } catch (const Malformed &malformed) {
        throw refusal(malformed, path, line_number);
    }
}

Trace read(const std::string &path, const std::string &name, bool may_be_empty) {
    LineFile file(path, name);
    return parse([&] { return file.next(); }, name, may_be_empty);
}

} // namespace

Trace parse_trace(std::string_view text, const std::string &path) {
    return parse([&] { return take_line(text); }, path, false);
}

Trace read_trace(const std::string &path, const std::string &name) {
    complete_event_log(path);
    return read(path, name.empty() ? path : name, false);
}

Trace read_event_log(const std::string &path, bool &ret_was_incomplete) {
    ret_was_incomplete = complete_event_log(path);
    return read(path, path, true);
}

} // namespace emm::tool

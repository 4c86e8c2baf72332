#include "trace/trace_row.h"

#include "print.h"

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

} // namespace emm::tool

#pragma once

#include "json.h"
#include "top/process.h"

#include <cstddef>
#include <string>
#include <string_view>

namespace emm::tool::top {

enum class Column {
    pid,
    program,
    plugin,
    device,
    live,
    cached,
    waiting,
    reserved,
    peak,
    spilled,
    host,
    failures,
    limit,
    free,
    group,
    driver,
    rate,
    oldest
};

// One context of a process, or a process without a context to show.
struct Row {
    const Process *process;
    const Context *context; // NULL: no context
};

// "pid", "program", ..., as --sort takes them. False: no such column.
bool find_column(std::string_view name, Column &ret_column);
std::string_view name_of(Column column);
std::string column_names(); // "pid, program, ... or oldest"
Column next_column(Column column);

// Numbers from the largest on, names and ids from the smallest on. The rows refer to `processes`.
std::vector<Row> sorted_rows(const std::vector<Process> &processes, Column by);

struct Size {
    size_t width = 0, height = 0; // 0: no limit
};

// The table in lines of at most the width. Columns that do not fit are left out, the less important
// ones first, and rows that do not fit are counted. `styled`: with escape codes for bold and red.
std::string table_text(const std::vector<Process> &processes, Column by, Size size, bool styled);

// The columns of a terminal that a text takes, once it is harmless.
size_t width_of(std::string_view text);

// The place of a text in its column, and of its cut: `middle` keeps the beginning and the end, and
// aligns left.
enum class Fit { left, right, middle };

// `text` in exactly `width` columns: filled with spaces, or cut, with '~' at the cut. Characters
// without a width are left out.
std::string fitted(std::string_view text, size_t width, Fit fit);

// The output of --json, in the order of the column.
Json to_json(const std::vector<Process> &processes, Column by);

// Prometheus's text exposition format.
std::string prometheus_text(const std::vector<Process> &processes);

// The text as a label's value, for use between quotes.
std::string escaped_label(std::string_view text);

} // namespace emm::tool::top

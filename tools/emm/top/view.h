#pragma once

#include "top/process.h"

#include <string_view>

namespace emm::tool::top {

enum class Column { pid, program, plugin, device, live, cached, reserved, peak, rate, oldest };

// One context of a process, or a process that has none to show.
struct Row {
    const Process *process;
    const Context *context; // NULL: none
};

// "pid", "program", ..., as --sort takes them. False: there is no such column.
bool find_column(std::string_view name, Column &ret_column);
std::string_view name_of(Column column);
Column next_column(Column column);

// Numbers from the largest on, names and ids from the smallest on. The rows refer to `processes`.
std::vector<Row> sorted_rows(const std::vector<Process> &processes, Column by);

struct Size {
    size_t width = 0, height = 0; // 0: no limit
};

// The table in lines of at most the width. Columns that do not fit are left out, the less important
// ones first, and rows that do not fit are counted. `styled`: with escape codes for bold and red.
std::string table_text(const std::vector<Process> &processes, Column by, Size size, bool styled);

} // namespace emm::tool::top

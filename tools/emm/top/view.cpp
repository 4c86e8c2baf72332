#include "top/view.h"

#include "table.h"

#include <algorithm>
#include <cctype>
#include <fmt/format.h>
#include <iterator>
#include <tuple>

namespace emm::tool::top {
namespace {

// A row without figures is sorted as if they were 0.
template <uint64_t emm_stats::*member> uint64_t figure_of(const Row &row) {
    return row.context && row.context->stats ? (*row.context->stats).*member : 0;
}

template <uint64_t emm_stats::*member> std::string figure_text(const Row &row) {
    return row.context && row.context->stats ? in_bytes(figure_of<member>(row)) : "-";
}

// Empty for 0 bytes.
template <uint64_t emm_stats::*member> std::string bytes_if_any(const Row &row) {
    return figure_of<member>(row) == 0 ? "" : in_bytes(figure_of<member>(row));
}

std::string failures_text(const Row &row) {
    const uint64_t count = figure_of<&emm_stats::failures>(row);
    return count == 0 ? "" : fmt::format("{}", count);
}

bool is_paused(const Row &row) {
    return figure_of<&emm_stats::paused_bytes>(row) > 0;
}

// For a paused pool, the copy of its content.
std::string host_text(const Row &row) {
    return is_paused(row) ? figure_text<&emm_stats::host_reserved_bytes>(row) : "";
}

Account account_of(const Row &row) {
    return row.context ? row.context->account : Account();
}

uint64_t limit_of(const Row &row) {
    return account_of(row).limit_bytes;
}

std::string limit_text(const Row &row) {
    return limit_of(row) == 0 ? "" : in_bytes(limit_of(row));
}

uint64_t free_of(const Row &row) {
    return account_of(row).free_bytes();
}

std::string free_text(const Row &row) {
    return limit_of(row) == 0 ? "" : in_bytes(free_of(row));
}

std::string group_text(const Row &row) {
    return account_of(row).group;
}

uint64_t driver_of(const Row &row) {
    return account_of(row).program_bytes;
}

std::string driver_text(const Row &row) {
    return driver_of(row) == 0 ? "" : in_bytes(driver_of(row));
}

// Without the folders of the executable file.
std::string program_text(const Row &row) {
    const Process &process = *row.process;
    const std::string &command = process.command.empty() ? process.program : process.command;
    const size_t end = std::min(command.find(' '), command.size());
    const size_t slash = command.rfind('/', end);
    return slash == std::string::npos || slash >= end ? command : command.substr(slash + 1);
}

// The file without its folders; --json has them.
std::string_view module_text(std::string_view path) {
    return path.substr(path.rfind('/') + 1); // all of a path without '/'
}

std::string in_time(int64_t nanoseconds) {
    const int64_t seconds = nanoseconds / 1'000'000'000;
    return seconds < 120      ? fmt::format("{} s", seconds)
           : seconds < 7200   ? fmt::format("{} min", seconds / 60)
           : seconds < 172800 ? fmt::format("{} h", seconds / 3600)
                              : fmt::format("{} d", seconds / 86400);
}

std::string oldest_text(const Row &row) {
    std::string text;
    for (const OldAllocation &each :
         row.context ? row.context->oldest : std::vector<OldAllocation>()) {
        text += fmt::format("{}{} {} {}", text.empty() ? "" : ", ", in_bytes(each.size),
                            in_time(each.age),
                            each.caller.empty() ? module_text(each.module) : each.caller);
    }
    return text;
}

std::string rate_text(const Row &row) {
    return row.context && row.context->allocations_rate
               ? fmt::format("{:.0f}", *row.context->allocations_rate)
               : "-";
}

// The plugin with its options, but without the folders of a file.
std::string plugin_text(const Row &row) {
    if (!row.context || row.context->spec.empty()) {
        return row.process->plugin.empty() ? "-" : row.process->plugin;
    }
    const std::string &spec = row.context->spec, &changed = row.context->changed_options;
    const size_t slash = spec.rfind('/', spec.find(':'));
    return spec.substr(slash == std::string::npos ? 0 : slash + 1) +
           (changed.empty() ? "" : ", now " + changed);
}

std::string device_text(const Row &row) {
    if (!row.context) {
        return "-";
    }
    const std::string &pool = row.context->pool;
    const bool is_held = row.process->is_held;
    return fmt::format("{}{}{}{}", row.context->device, pool.empty() ? "" : " ", pool,
                       is_paused(row) ? is_held ? " paused, held" : " paused"
                       : is_held      ? " held"
                                      : "");
}

std::string pid_text(const Row &row) {
    return fmt::format("{}", row.process->pid);
}

int64_t pid_of(const Row &row) {
    return row.process->pid;
}

int64_t device_of(const Row &row) {
    return row.context ? row.context->device : -1;
}

double rate_of(const Row &row) {
    return row.context ? row.context->allocations_rate.value_or(-1) : -1;
}

int64_t age_of(const Row &row) {
    return row.context && !row.context->oldest.empty() ? row.context->oldest.front().age : -1;
}

// Negative: `one` comes first.
template <auto key> int from_smallest(const Row &one, const Row &other) {
    const auto a = key(one), b = key(other);
    return (a > b) - (a < b);
}

template <auto key> int from_largest(const Row &one, const Row &other) {
    return from_smallest<key>(other, one);
}

struct Description {
    std::string_view name, title;
    size_t narrowest; // of text, which gives way; 0: a number, which does not
    int rank;         // 0 is left out last
    Fit fit;
    std::string (*text)(const Row &row);
    int (*order)(const Row &one, const Row &other);
};

template <uint64_t emm_stats::*member>
constexpr Description figure(std::string_view name, std::string_view title, int rank) {
    return {name, title, 0, rank, Fit::right, figure_text<member>, from_largest<figure_of<member>>};
}

// By the column's number.
constexpr Description descriptions[] = {
    {"pid", "PID", 0, 0, Fit::right, pid_text, from_smallest<pid_of>},
    {"program", "PROGRAM", 16, 1, Fit::middle, program_text, from_smallest<program_text>},
    {"plugin", "PLUGIN", 8, 4, Fit::left, plugin_text, from_smallest<plugin_text>},
    {"device", "DEV", 0, 3, Fit::right, device_text, from_smallest<device_of>},
    figure<&emm_stats::live_bytes>("live", "LIVE", 2),
    figure<&emm_stats::cached_bytes>("cached", "CACHED", 7),
    {"waiting", "WAITING", 0, 16, Fit::right, bytes_if_any<&emm_stats::pending_bytes>,
     from_largest<figure_of<&emm_stats::pending_bytes>>},
    figure<&emm_stats::reserved_bytes>("reserved", "RESERVED", 1),
    figure<&emm_stats::peak_reserved_bytes>("peak", "PEAK", 6),
    {"spilled", "SPILLED", 0, 14, Fit::right, bytes_if_any<&emm_stats::spilled_bytes>,
     from_largest<figure_of<&emm_stats::spilled_bytes>>},
    {"host", "HOST", 0, 15, Fit::right, host_text,
     from_largest<figure_of<&emm_stats::host_reserved_bytes>>},
    {"failures", "FAILED", 0, 10, Fit::right, failures_text,
     from_largest<figure_of<&emm_stats::failures>>},
    {"limit", "LIMIT", 0, 5, Fit::right, limit_text, from_largest<limit_of>},
    {"free", "FREE", 0, 11, Fit::right, free_text, from_largest<free_of>},
    {"group", "GROUP", 8, 13, Fit::left, group_text, from_smallest<group_text>},
    {"driver", "DRIVER", 0, 12, Fit::right, driver_text, from_largest<driver_of>},
    {"rate", "ALLOC/S", 0, 8, Fit::right, rate_text, from_largest<rate_of>},
    {"oldest", "OLDEST", 24, 9, Fit::left, oldest_text, from_largest<age_of>},
};

constexpr size_t narrowest_text = 8, widest_text = 200;
constexpr int first_extra_rank = 5; // from here on, columns go before text is narrower than said
constexpr size_t gap = 2;

const Description &describe(Column column) {
    return descriptions[static_cast<size_t>(column)];
}

// The remark on a row beside its figures.
std::string problem_of(const Row &row) {
    if (!row.process->problem.empty()) {
        return row.process->problem;
    }
    if (row.process->stuck > 0) {
        return fmt::format("the plugin has not answered for {:.1f} s",
                           static_cast<double>(row.process->stuck) / 1e9);
    }
    if (!row.context) {
        return "no context is served";
    }
    const uint64_t left_out = row.process->contexts_left_out;
    return row.context->problem.empty() && left_out > 0 &&
                   row.context == &row.process->contexts.back()
               ? fmt::format("{} more contexts", left_out)
               : row.context->problem;
}

bool is_before(const Row &one, const Row &other, Column by) {
    const auto id = [](const Row &row) {
        return std::make_tuple(row.process->pid, std::string_view(row.process->name),
                               row.context ? row.context->id : 0,
                               row.context ? std::string_view(row.context->pool)
                                           : std::string_view());
    };
    const int order = describe(by).order(one, other);
    return order != 0 ? order < 0 : id(one) < id(other);
}

struct Laid {
    const Description *description;
    size_t width;
};

size_t width_of_all(const std::vector<Laid> &columns) {
    size_t width = 0;
    for (const Laid &each : columns) {
        width += each.width + (width == 0 ? 0 : gap);
    }
    return width;
}

std::vector<Laid> natural_columns(const std::vector<Row> &rows) {
    std::vector<Laid> columns;
    for (const Description &each : descriptions) {
        const bool is_empty = std::all_of(rows.begin(), rows.end(),
                                          [&](const Row &row) { return each.text(row).empty(); });
        if (is_empty && !rows.empty()) {
            continue; // as the columns that few processes fill
        }
        size_t width = each.title.size();
        for (const Row &row : rows) {
            width = std::max(width, width_of(each.text(row)));
        }
        columns.push_back({&each, each.narrowest != 0 ? std::min(width, widest_text) : width});
    }
    return columns;
}

// Shortens texts to the width, those with the most to spare first, as far as possible.
std::vector<Laid> shortened(std::vector<Laid> columns, size_t width) {
    const bool has_extra = std::any_of(columns.begin(), columns.end(), [](const Laid &each) {
        return each.description->rank >= first_extra_rank;
    });
    const auto spare = [has_extra](const Laid &each) {
        const size_t wanted = each.description->narrowest;
        const size_t narrowest = has_extra ? wanted : std::min(wanted, narrowest_text);
        return narrowest == 0 ? 0 : each.width - std::min(each.width, narrowest);
    };
    while (width_of_all(columns) > width) {
        const auto widest = std::max_element(
            columns.begin(), columns.end(),
            [&](const Laid &one, const Laid &other) { return spare(one) < spare(other); });
        if (spare(*widest) == 0) {
            break;
        }
        widest->width -= std::min(width_of_all(columns) - width, spare(*widest));
    }
    return columns;
}

// If shorter text does not suffice, leaves columns out and gives their room to the text.
std::vector<Laid> fit(std::vector<Laid> columns, size_t width) {
    if (width == 0) {
        return columns;
    }
    for (;;) {
        std::vector<Laid> laid = shortened(columns, width);
        if (width_of_all(laid) <= width) {
            return laid;
        }
        if (columns.size() == 1) {
            laid.front().width = width;
            return laid;
        }
        columns.erase(std::max_element(columns.begin(), columns.end(),
                                       [](const Laid &one, const Laid &other) {
                                           return one.description->rank < other.description->rank;
                                       }));
    }
}

template <class Text> std::string line_of(const std::vector<Laid> &columns, Text text) {
    std::string line;
    for (const Laid &each : columns) {
        line += line.empty() ? "" : std::string(gap, ' ');
        line += fitted(text(*each.description), each.width, each.description->fit);
    }
    line.erase(line.find_last_not_of(' ') + 1);
    return line;
}

std::string in_style(const std::string &line, const char *code, bool styled) {
    return (styled ? fmt::format("\033[{}m{}\033[0m", code, line) : line) + "\n";
}

std::string problem_line(const std::string &problem, size_t width) {
    const std::string text = "  ! " + problem;
    std::string line = fitted(text, width == 0 ? width_of(text) : width, Fit::left);
    line.erase(line.find_last_not_of(' ') + 1);
    return line;
}

// One or two lines each.
std::vector<std::string> lines_of(const std::vector<Row> &rows, const std::vector<Laid> &columns,
                                  size_t width, bool styled) {
    std::vector<std::string> lines;
    for (const Row &row : rows) {
        std::string line =
            line_of(columns, [&](const Description &each) { return each.text(row); }) + "\n";
        if (const std::string problem = problem_of(row); !problem.empty()) {
            line += in_style(problem_line(problem, width), "31", styled);
        }
        lines.push_back(std::move(line));
    }
    return lines;
}

size_t height_of(const std::string &text) {
    return static_cast<size_t>(std::count(text.begin(), text.end(), '\n'));
}

// As many lines as fit under the title; the last line counts the others.
std::string within(const std::vector<std::string> &lines, Size size) {
    std::string text;
    size_t used = 1, shown = 0;
    for (const std::string &line : lines) {
        const size_t room = shown + 1 == lines.size() ? 0 : 1; // for the count
        if (size.height != 0 && used + height_of(line) + room > size.height) {
            break;
        }
        text += line;
        used += height_of(line);
        ++shown;
    }
    const size_t left = lines.size() - shown;
    return left == 0 ? text
                     : text + problem_line(fmt::format("{} more rows", left), size.width) + "\n";
}

} // namespace

bool find_column(std::string_view name, Column &ret_column) {
    const auto is_named = [name](std::string_view text) {
        return std::equal(text.begin(), text.end(), name.begin(), name.end(),
                          [](char a, char b) { return std::tolower(a) == std::tolower(b); });
    };
    const auto *const found = std::find_if(
        std::begin(descriptions), std::end(descriptions),
        [&](const Description &each) { return is_named(each.name) || is_named(each.title); });
    if (found == std::end(descriptions)) {
        return false;
    }
    ret_column = static_cast<Column>(found - descriptions);
    return true;
}

std::string_view name_of(Column column) {
    return describe(column).name;
}

std::string column_names() {
    std::string names;
    for (const Description &each : descriptions) {
        const bool is_last = &each == std::end(descriptions) - 1;
        names += fmt::format("{}{}", names.empty() ? "" : is_last ? " or " : ", ", each.name);
    }
    return names;
}

Column next_column(Column column) {
    return static_cast<Column>((static_cast<size_t>(column) + 1) % std::size(descriptions));
}

std::vector<Row> sorted_rows(const std::vector<Process> &processes, Column by) {
    std::vector<Row> rows;
    for (const Process &process : processes) {
        for (const Context &context : process.contexts) {
            rows.push_back({&process, &context});
        }
        if (process.contexts.empty()) {
            rows.push_back({&process, nullptr});
        }
    }
    std::sort(rows.begin(), rows.end(),
              [by](const Row &one, const Row &other) { return is_before(one, other, by); });
    return rows;
}

std::string table_text(const std::vector<Process> &processes, Column by, Size size, bool styled) {
    const std::vector<Row> rows = sorted_rows(processes, by);
    const std::vector<Laid> columns = fit(natural_columns(rows), size.width);
    const std::string title =
        line_of(columns, [](const Description &each) { return std::string(each.title); });
    return in_style(title, "1", styled) + within(lines_of(rows, columns, size.width, styled), size);
}

} // namespace emm::tool::top

#include "table.h"

#include "observe/text.h"

#include <algorithm>
#include <fmt/format.h>

namespace emm::tool {

// A line end in a text would look like the next row.
void Table::add(std::vector<std::string> row) {
    for (std::string &text : row) {
        observe::make_one_line(text);
    }
    rows_.push_back(std::move(row));
}

std::string Table::text() const {
    std::vector<size_t> widths(rows_.front().size(), 0);
    for (const auto &row : rows_) {
        for (size_t i = 0; i < row.size(); i++) {
            widths[i] = std::max(widths[i], row[i].size());
        }
    }
    std::string text;
    for (const auto &row : rows_) {
        std::string line;
        for (size_t i = 0; i < row.size(); i++) {
            line += i == 0 ? fmt::format("{:<{}}", row[i], widths[i])
                           : fmt::format("  {:>{}}", row[i], widths[i]);
        }
        line.erase(line.find_last_not_of(' ') + 1);
        text += line + "\n";
    }
    return text;
}

std::string in_bytes(uint64_t bytes) {
    static const char *const units[] = {"B", "KiB", "MiB", "GiB", "TiB"};
    double value = static_cast<double>(bytes);
    size_t unit = 0;
    for (; value >= 1024 && unit + 1 < std::size(units); unit++) {
        value /= 1024;
    }
    return unit == 0 ? fmt::format("{} B", bytes) : fmt::format("{:.1f} {}", value, units[unit]);
}

std::string in_tenths(double value) {
    return fmt::format("{:.1f}", value);
}

std::string joined(const std::vector<std::string> &texts) {
    return fmt::format("{}", fmt::join(texts, ", "));
}

} // namespace emm::tool

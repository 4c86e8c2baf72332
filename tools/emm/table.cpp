#include "table.h"

#include "observe/text.h"
#include "print.h"

#include <algorithm>
#include <fmt/ranges.h>
#include <numeric>
#include <string_view>
#include <unistd.h>

namespace emm::tool {
namespace {

constexpr size_t gap = 2;

bool begins_letter(char byte) {
    return (static_cast<unsigned char>(byte) & 0xc0) != 0x80;
}

// In letters of UTF-8.
size_t length_of(const std::string &text) {
    return static_cast<size_t>(std::count_if(text.begin(), text.end(), begins_letter));
}

// The position of the letter with that number.
size_t letter_at(const std::string &text, size_t number) {
    size_t at = 0;
    for (; at < text.size(); at++) {
        if (begins_letter(text[at]) && number-- == 0) {
            break;
        }
    }
    return at;
}

std::string shortened(const std::string &text, size_t width) {
    constexpr std::string_view dots = "...";
    const size_t length = length_of(text);
    if (length <= width) {
        return text;
    }
    const size_t kept = width - std::min(width, dots.size());
    return text.substr(0, letter_at(text, kept / 2)) + std::string(dots) +
           text.substr(letter_at(text, length - (kept - kept / 2)));
}

} // namespace

// A line end in a text would look like the next row.
void Table::add(std::vector<std::string> row) {
    for (std::string &text : row) {
        observe::make_one_line(text);
    }
    rows_.push_back(std::move(row));
}

std::string Table::text() const {
    return text(terminal_width(STDOUT_FILENO));
}

std::string Table::text(size_t width) const {
    const std::vector<size_t> fitting = widths(width);
    std::string all;
    for (const Columns &columns : parts(fitting, width)) {
        all += (all.empty() ? "" : "\n") + part(columns, fitting);
    }
    return all;
}

// Each column as wide as its widest text, except labels that would leave no room for the other
// columns.
std::vector<size_t> Table::widths(size_t width) const {
    constexpr size_t least = 12;
    std::vector<size_t> all(rows_.front().size(), 0);
    for (const auto &row : rows_) {
        for (size_t i = 0; i < row.size(); i++) {
            all[i] = std::max(all[i], length_of(row[i]));
        }
    }
    const size_t widest = *std::max_element(all.begin(), all.end());
    const size_t figures =
        labels_ < all.size()
            ? *std::max_element(all.begin() + static_cast<ptrdiff_t>(labels_), all.end())
            : 0;
    size_t limit = width == 0 ? widest : least;
    const auto label_bytes = [&](size_t most) {
        size_t sum = 0;
        for (size_t i = 0; i < labels_; i++) {
            sum += std::min(all[i], most) + gap;
        }
        return sum;
    };
    while (limit < widest && label_bytes(limit + 1) + figures <= width) {
        limit++;
    }
    for (size_t i = 0; i < labels_; i++) {
        all[i] = std::min(all[i], limit);
    }
    return all;
}

std::vector<Table::Columns> Table::parts(const std::vector<size_t> &widths, size_t width) const {
    Columns labels(labels_);
    std::iota(labels.begin(), labels.end(), size_t{0});
    size_t label_width = 0;
    for (const size_t label : labels) {
        label_width += (label == 0 ? 0 : gap) + widths[label];
    }
    std::vector<Columns> all = {labels};
    size_t used = label_width;
    for (size_t i = labels_; i < widths.size(); i++) {
        used += gap + widths[i];
        if (width != 0 && used > width && all.back().size() > labels_) {
            all.push_back(labels);
            used = label_width + gap + widths[i];
        }
        all.back().push_back(i);
    }
    return all;
}

std::string Table::part(const Columns &columns, const std::vector<size_t> &widths) const {
    std::string text;
    for (const auto &row : rows_) {
        std::string line;
        for (const size_t i : columns) {
            const std::string cell = shortened(row[i], widths[i]);
            const std::string room(widths[i] - std::min(length_of(cell), widths[i]), ' ');
            line += i == 0 ? cell + room : std::string(gap, ' ') + room + cell;
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

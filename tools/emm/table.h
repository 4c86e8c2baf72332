#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace emm::tool {

// Text in columns: the first aligned left, the rest right, each as wide as its texts. The first
// `labels` columns name the row.
class Table {
public:
    explicit Table(std::vector<std::string> titles, size_t labels = 1)
        : rows_{std::move(titles)}, labels_(labels) {}
    void add(std::vector<std::string> row);
    // As wide as standard output's terminal; in full if standard output is no terminal.
    std::string text() const;

    // Text that does not fit into `width` columns follows below, behind the labels again, and
    // labels that leave no room lose their middle. 0: in full.
    std::string text(size_t width) const;

private:
    using Columns = std::vector<size_t>; // their numbers

    std::vector<size_t> widths(size_t width) const;
    std::vector<Columns> parts(const std::vector<size_t> &widths, size_t width) const;
    std::string part(const Columns &columns, const std::vector<size_t> &widths) const;

    std::vector<std::vector<std::string>> rows_;
    size_t labels_;
};

// "12.3 MiB"
std::string in_bytes(uint64_t bytes);

// "1234.5"
std::string in_tenths(double value);

// Texts with ", " between them.
std::string joined(const std::vector<std::string> &texts);

} // namespace emm::tool

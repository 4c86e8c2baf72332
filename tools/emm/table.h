#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace emm::tool {

// Text in columns: the first aligned left, the rest right, each as wide as its texts.
class Table {
public:
    explicit Table(std::vector<std::string> titles) : rows_{std::move(titles)} {}
    void add(std::vector<std::string> row);
    std::string text() const;

private:
    std::vector<std::vector<std::string>> rows_;
};

// "12.3 MiB"
std::string in_bytes(uint64_t bytes);

// "1234.5"
std::string in_tenths(double value);

// Texts with ", " between them.
std::string joined(const std::vector<std::string> &texts);

} // namespace emm::tool

#include "loader/tried.h"

#include <fmt/ranges.h>

#include <algorithm>

namespace emm::loader {

std::string tried_places(const std::vector<std::string> &tried) {
    constexpr size_t shown = 3;
    if (tried.empty()) {
        return "";
    }
    const auto end = tried.begin() + static_cast<std::ptrdiff_t>(std::min(tried.size(), shown));
    std::string text = fmt::format(" (tried {}", fmt::join(tried.begin(), end, ", "));
    if (tried.size() > shown) {
        text += fmt::format(" and {} more", tried.size() - shown);
    }
    return text + ")";
}

} // namespace emm::loader

#include "text.h"

#include "observe/text.h"

namespace emm::tool {

std::string plain_lines(std::string_view text) {
    std::string plain;
    while (!text.empty()) {
        const size_t end = text.find('\n');
        const bool is_last = end == std::string_view::npos;
        plain += observe::one_line(text.substr(0, end));
        plain += is_last ? "" : "\n";
        text.remove_prefix(is_last ? text.size() : end + 1);
    }
    return plain;
}

std::string in_quotes(std::string_view text) {
    constexpr size_t longest = 60;
    return "'" + observe::one_line(text.substr(0, longest)) +
           (text.size() > longest ? "...'" : "'");
}

// A single quote ends the quoted text, stands escaped, and begins it again.
std::string shell_quoted(std::string_view text) {
    std::string result = "'";
    for (const char c : text) {
        result += c == '\'' ? std::string("'\\''") : std::string(1, c);
    }
    return result + "'";
}

} // namespace emm::tool

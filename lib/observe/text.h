#pragma once

#include <cstddef>
#include <cstdint>
#include <exception>
#include <string>
#include <string_view>
#include <vector>

// Texts that come from elsewhere (plugins, exceptions, the dynamic linker, file names, options) and
// leave emm in errors, in the log and as descriptions of plugins.
namespace emm::observe {

// No text that leaves emm is longer, in bytes.
inline constexpr size_t longest_text = 4096;

// `text` as UTF-8 on one line, of at most `most` bytes (40 or more). Line ends and tabs become
// spaces, other control characters and those that turn the direction of writing '?', bytes that are
// no UTF-8 U+FFFD; what is too long loses its middle to " [...] ".
std::string one_line(std::string_view text, size_t most = longest_text);

// Whether no character of UTF-8 text would be changed by one_line, however long it is.
bool is_plain(std::string_view text) noexcept;

// Whether one_line would change nothing.
bool is_one_line(std::string_view text) noexcept;

// The same in place; takes no memory where nothing changes.
void make_one_line(std::string &text);

// "a:b" at its separators: one part more than there are of these.
inline std::vector<std::string> split(std::string_view text, char separator) {
    std::vector<std::string> parts;
    for (size_t begin = 0; begin <= text.size();) {
        const size_t end = text.find(separator, begin);
        parts.emplace_back(text.substr(begin, end - begin));
        begin = end == text.npos ? text.size() + 1 : end + 1;
    }
    return parts;
}

// A text of a plugin's, of which no more is read than is of use.
std::string_view bounded(const char *text) noexcept;

// exception.what(), which may be NULL; no longer than bounded() reads.
std::string_view what_of(const std::exception &exception) noexcept;

// The same of the exception in flight, whatever it is. Only within a handler.
std::string_view what_is_thrown() noexcept;

// "12 B", "1.50 MiB".
std::string bytes_text(uint64_t bytes);

} // namespace emm::observe

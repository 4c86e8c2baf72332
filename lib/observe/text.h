#pragma once

#include <cstddef>
#include <cstdint>
#include <exception>
#include <string>
#include <string_view>
#include <vector>

// Texts from elsewhere (plugins, exceptions, the dynamic linker, file names, options) that leave
// emm in errors, in the log and as descriptions of plugins.
namespace emm::observe {

// The longest text that leaves emm, in bytes.
inline constexpr size_t longest_text = 4096;

// `text` as UTF-8 on one line, of at most `most` bytes (40 or more). Line ends and tabs become
// spaces. Other control characters, and those that turn the direction of writing, become '?'. Bytes
// that are not UTF-8 become U+FFFD. In a text that is too long, " [...] " replaces the middle.
std::string one_line(std::string_view text, size_t most = longest_text);

// Whether one_line would change no character of the UTF-8 text, whatever its length.
bool is_plain(std::string_view text) noexcept;

// Whether one_line would change nothing.
bool is_one_line(std::string_view text) noexcept;

// The same in place; takes no memory if nothing changes.
void make_one_line(std::string &text);

// Splits "a:b" at its separators, into one part more than there are separators.
inline std::vector<std::string> split(std::string_view text, char separator) {
    std::vector<std::string> parts;
    for (size_t begin = 0; begin <= text.size();) {
        const size_t end = text.find(separator, begin);
        parts.emplace_back(text.substr(begin, end - begin));
        begin = end == text.npos ? text.size() + 1 : end + 1;
    }
    return parts;
}

// A plugin's text, read only as far as it is used.
std::string_view bounded(const char *text) noexcept;

// exception.what(), which may be NULL; no longer than bounded() reads.
std::string_view what_of(const std::exception &exception) noexcept;

// The same for the exception in flight, of any type. Only within a handler.
std::string_view what_is_thrown() noexcept;

// "12 B", "1.50 MiB".
std::string bytes_text(uint64_t bytes);

// "1 block", "2 blocks", "2 processes". The noun is a singular that takes an s, or an es after an
// s.
std::string counted(uint64_t count, std::string_view noun);

} // namespace emm::observe

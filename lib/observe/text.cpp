#include "observe/text.h"

#include "observe/character.h"

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <fmt/format.h>
#include <iterator>

namespace emm::observe {
namespace {

constexpr std::string_view replacement = "\xef\xbf\xbd"; // U+FFFD
constexpr std::string_view gap = " [...] ";

void append(std::string &line, std::string_view text, const Character &character) {
    if (!character.valid) {
        line += replacement;
    } else if (is_plain(character)) {
        line += text.substr(0, character.bytes);
    } else {
        line += separates_lines(character.code) ? ' ' : '?';
    }
}

// As many whole characters from the beginning as fit in `most` bytes.
std::string head_of(std::string_view text, size_t most) {
    std::string line;
    while (!text.empty()) {
        const Character character = first_of(text.data(), text.size());
        const size_t before = line.size();
        append(line, text, character);
        if (line.size() > most) {
            line.resize(before);
            break;
        }
        text.remove_prefix(character.bytes);
    }
    return line;
}

// At most the last `most` bytes of `text`, as a line; no character is cut.
std::string tail_of(std::string_view text, size_t most) {
    text.remove_prefix(text.size() - std::min(text.size(), most));
    while (!text.empty() && continues(text.front())) {
        text.remove_prefix(1);
    }
    std::string line = head_of(text, SIZE_MAX);
    if (line.size() <= most) {
        return line;
    }
    // Replacements are up to three times as long as the characters they replace.
    line.erase(0, line.size() - most);
    const size_t begin = std::find_if_not(line.begin(), line.end(), continues) - line.begin();
    return line.substr(begin);
}

} // namespace

bool is_plain(std::string_view text) noexcept {
    while (!text.empty()) {
        const Character character = first_of(text.data(), text.size());
        if (!is_plain(character)) {
            return false;
        }
        text.remove_prefix(character.bytes);
    }
    return true;
}

bool is_one_line(std::string_view text) noexcept {
    return text.size() <= longest_text && is_plain(text);
}

std::string one_line(std::string_view text, size_t most) {
    std::string line = head_of(text, most);
    const bool whole = text.size() <= most * 4 && head_of(text, SIZE_MAX) == line;
    if (whole) {
        return line;
    }
    const size_t end = most / 4;
    return head_of(line, most - end - gap.size()) + std::string(gap) + tail_of(text, end);
}

void make_one_line(std::string &text) {
    if (!is_one_line(text)) {
        text = one_line(text);
    }
}

std::string_view bounded(const char *text) noexcept {
    // one_line keeps the end of a text that it shortens.
    constexpr size_t enough = 16 * longest_text;
    return text ? std::string_view(text, strnlen(text, enough)) : std::string_view();
}

std::string_view what_of(const std::exception &exception) noexcept {
    const char *const what = exception.what();
    return what ? bounded(what) : "an exception whose what() is NULL";
}

std::string_view what_is_thrown() noexcept {
    try {
        throw;
    } catch (const std::exception &exception) {
        return what_of(exception);
    } catch (...) {
        return "an exception that is not a std::exception";
    }
}

std::string bytes_text(uint64_t bytes) {
    static constexpr const char *units[] = {"B", "KiB", "MiB", "GiB", "TiB", "PiB", "EiB"};
    size_t unit = 0;
    double number = double(bytes);
    while (number >= 1024 && unit + 1 < std::size(units)) {
        number /= 1024;
        unit++;
    }
    return unit == 0 ? fmt::format("{} B", bytes) : fmt::format("{:.2f} {}", number, units[unit]);
}

std::string counted(uint64_t count, std::string_view noun) {
    const char *const ending = count == 1 ? "" : noun.ends_with('s') ? "es" : "s";
    return fmt::format("{} {}{}", count, noun, ending);
}

} // namespace emm::observe

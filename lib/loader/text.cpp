#include "loader/text.h"

#include <fmt/ranges.h>

#include <algorithm>
#include <iterator>

namespace emm::loader {

std::string encode(std::string_view text) {
    std::string encoded;
    for (const char c : text) {
        const auto escape = std::find_if(std::begin(escapes), std::end(escapes),
                                         [c](const Escape &e) { return e.character == c; });
        if (escape == std::end(escapes)) {
            encoded += c;
        } else {
            encoded += escape->code;
        }
    }
    return encoded;
}

size_t find_plugin(std::string_view spec) {
    for (size_t begin = 0;;) {
        size_t end = spec.find_first_of("+:/", begin);
        if (end != spec.npos && spec[end] == ':') {
            end = spec.find('+', end); // a value may have a '/', and writes %2B
        }
        if (end == spec.npos || spec[end] == '/') {
            return begin;
        }
        begin = end + 1;
    }
}

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

std::string machine_name(unsigned machine) {
    switch (machine) {
    case EM_X86_64:
        return "x86-64";
    case EM_AARCH64:
        return "AArch64";
    case EM_386:
        return "32-bit x86";
    case EM_ARM:
        return "32-bit Arm";
    case EM_PPC64:
        return "PowerPC64";
    case EM_RISCV:
        return "RISC-V";
    default:
        return fmt::format("machine {}", machine);
    }
}

} // namespace emm::loader

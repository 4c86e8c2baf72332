// Tells the characters of UTF-8 text that can be shown as they are. Needs the C library alone,
// because the interposer of `emm run` has no other.
#pragma once

#include <cstddef>

namespace emm::observe {

struct Character {
    char32_t code = 0;
    size_t bytes = 1;
    bool valid = false;
};

inline bool continues(char byte) {
    return (static_cast<unsigned char>(byte) & 0xc0) == 0x80;
}

// The first character of a text that is not empty; an invalid one is one byte.
inline Character first_of(const char *text, size_t size) {
    const auto lead = static_cast<unsigned char>(text[0]);
    if (lead < 0x80) {
        return {lead, 1, true};
    }
    const size_t bytes = lead >= 0xf0 ? 4 : lead >= 0xe0 ? 3 : 2;
    if (lead < 0xc2 || lead > 0xf4 || size < bytes) {
        return {};
    }
    char32_t code = lead & (0x7fu >> bytes);
    for (size_t i = 1; i < bytes; ++i) {
        if (!continues(text[i])) {
            return {};
        }
        code = code << 6 | (static_cast<unsigned char>(text[i]) & 0x3f);
    }
    // Not as short as it could be, a half of a pair, or beyond Unicode.
    const char32_t least = bytes == 4 ? 0x10000 : bytes == 3 ? 0x800 : 0x80;
    if (code < least || (code >= 0xd800 && code <= 0xdfff) || code > 0x10ffff) {
        return {};
    }
    return {code, bytes, true};
}

inline bool is_control(char32_t code) {
    return code < 0x20 || (code >= 0x7f && code <= 0x9f);
}

inline bool separates_lines(char32_t code) {
    return (code >= '\t' && code <= '\r') || code == 0x85 || code == 0x2028 || code == 0x2029;
}

inline bool turns_direction(char32_t code) {
    return code == 0x200e || code == 0x200f || code == 0x61c ||
           (code >= 0x202a && code <= 0x202e) || (code >= 0x2066 && code <= 0x2069);
}

inline bool is_plain(const Character &character) {
    return character.valid && !is_control(character.code) && !separates_lines(character.code) &&
           !turns_direction(character.code);
}

} // namespace emm::observe

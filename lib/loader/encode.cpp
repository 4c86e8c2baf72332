#include "loader/escapes.h"
#include "loader/spec.h"

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

} // namespace emm::loader

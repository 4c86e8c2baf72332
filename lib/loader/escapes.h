#pragma once

#include <string_view>

namespace emm::loader {

// How characters that separate the parts of a spec are written inside a part.
struct Escape {
    char character;
    std::string_view code;
};

inline constexpr Escape escapes[] = {
    {':', "%3A"}, {';', "%3B"}, {',', "%2C"}, {'=', "%3D"}, {'%', "%25"}};

} // namespace emm::loader

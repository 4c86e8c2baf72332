#pragma once

#include <cstddef>
#include <string>
#include <string_view>

namespace emm::tool::top {

// Columns of a terminal that a text takes, once it is harmless.
size_t width_of(std::string_view text);

// `text` in exactly `width` columns: filled with spaces, or cut, with '~' where it was. Characters
// without a width of their own are left out.
std::string fitted(std::string_view text, size_t width, bool to_the_right);

} // namespace emm::tool::top

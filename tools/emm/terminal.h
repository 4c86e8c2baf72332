#pragma once

#include <cstddef>

namespace emm::tool {

// How many columns the terminal behind a descriptor has; 0: it is none, or does not say.
size_t terminal_width(int descriptor);

} // namespace emm::tool

#pragma once

#include <string_view>

namespace emm::observe {

// The value of a variable, or "" if it is unset. If the process is elevated, variables are ignored,
// with one warning for each.
std::string_view environment(const char *name) noexcept;

// The same for a variable that takes words or a number (observe/settings.h). A wrong value counts
// as "", with one warning.
std::string_view setting(const char *name) noexcept;

// Warns now about wrong values of all variables, because some are first read much later. Also warns
// about names that are close to those of variables.
void check_settings() noexcept;

} // namespace emm::observe

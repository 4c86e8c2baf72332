#pragma once

#include <string_view>

namespace emm::observe {

// The value of a variable, or "" if it is unset. Under elevation it is ignored, and a warning says
// so once for each variable.
std::string_view environment(const char *name) noexcept;

// The same of a variable that takes words or a number (observe/settings.h): "" for a value that it
// does not take, of which a warning tells, once.
std::string_view setting(const char *name) noexcept;

// Has the warnings of all of them now: some are first read long after. Names that are close to
// those of variables are warned of too.
void check_settings() noexcept;

} // namespace emm::observe

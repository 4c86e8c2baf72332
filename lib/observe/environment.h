#pragma once

#include <string_view>

namespace emm::observe {

// The process runs with more rights than its caller has (set-user-id, capabilities).
bool elevated() noexcept;

// The value of a variable, or "" if it is unset. Under elevation it is ignored, and a warning says
// so once for each variable.
std::string_view environment(const char *name) noexcept;

} // namespace emm::observe

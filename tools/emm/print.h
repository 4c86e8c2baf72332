#pragma once

#include "json.h"

#include <string_view>

// What commands write to the terminal, or to what stands in its place.
namespace emm::tool {

// Text for people, on standard output. Of control characters, line ends alone are written. Throws
// Failure unless all of it was taken.
void print(std::string_view text);

// The same with every byte as it is, for a shell.
void print_as_is(std::string_view text);

// One object for programs, on standard output. Throws Failure unless all of it was taken.
void print_json(const Json &json);

// Text for people, on standard error: what cannot be written there is lost.
void print_error(std::string_view text) noexcept;

} // namespace emm::tool

#pragma once

#include <string>
#include <string_view>

// Texts from files, plugins and the command line, made fit to be shown (observe::one_line).
namespace emm::tool {

// Line by line: of control characters, line ends alone are left.
std::string plain_lines(std::string_view text);

// What a file has in a place: in quotes, on one line, and short.
std::string in_quotes(std::string_view text);

// As one word of a shell's, whatever is in it.
std::string shell_quoted(std::string_view text);

} // namespace emm::tool

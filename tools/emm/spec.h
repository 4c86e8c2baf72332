#pragma once

#include <string>
#include <string_view>

// Plugin specs on the command line.
namespace emm::tool {

// A list of specs with absolute paths, as libemm wants them. A spec with a '/' is a path; relative
// paths begin at `folder`.
std::string with_absolute_paths(std::string_view specs, const std::string &folder);

// The same from the current folder. Without a current folder the specs stay, and libemm reports
// them.
void make_paths_absolute(std::string &specs);

// Whether the specs are several, separated by ';'.
bool is_list(std::string_view specs);

} // namespace emm::tool

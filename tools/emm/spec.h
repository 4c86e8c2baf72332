#pragma once

#include <string>
#include <string_view>

// Plugin specs on the command line.
namespace emm::tool {

// A list of specs with the paths in it absolute, as libemm wants them. What has a '/' is a path;
// `folder` is where a relative one counts from.
std::string with_absolute_paths(std::string_view specs, const std::string &folder);

// The same from the current folder. If there is none, libemm will say what it cannot take.
void make_paths_absolute(std::string &specs);

// Whether there are several, separated by ';'.
bool is_list(std::string_view specs);

} // namespace emm::tool

// A program may reach a CUDA driver past the interposer: what it allocates there is not emm's.
#pragma once

#include <string>

namespace emm::run {

// The path of a CUDA driver in `maps`, the text of /proc/self/maps, that is neither `interposer`
// nor `driver`, or of `driver` itself if it is there twice (dlmopen); "" if there is none.
std::string second_driver(const std::string &maps, const std::string &interposer,
                          const std::string &driver);

// Whether any library has been loaded since this was asked last.
bool has_loaded_libraries();

// Says so on standard error, once in a process. The text takes milliseconds to read in a program on
// CUDA, so that happens only where a library has been loaded since.
void report_second_driver();

} // namespace emm::run

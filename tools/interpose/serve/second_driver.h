// A program may reach a CUDA driver past the interposer; memory that it allocates there is not
// emm's.
#pragma once

#include <string>

namespace emm::run {

// The path of a CUDA driver in `maps`, the text of /proc/self/maps, that is neither `interposer`
// nor `driver`; or of `driver` itself if it is there twice (dlmopen); "": no such driver.
std::string second_driver(const std::string &maps, const std::string &interposer,
                          const std::string &driver);

// Whether any library has been loaded since the last call.
bool has_loaded_libraries();

// Reports it on standard error, once in a process. In a program on CUDA the text takes milliseconds
// to read, so it is read only if a library has been loaded since.
void report_second_driver();

} // namespace emm::run

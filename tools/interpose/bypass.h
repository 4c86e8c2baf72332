#pragma once

namespace emm::run {

// Whether it is a file of the CUDA driver, by its name.
bool is_driver_file(const char *path);

// The path of a driver that this process has loaded, other than the library `own`; NULL: none.
// Valid for as long as that is loaded.
const char *find_driver_beside(const char *own);

} // namespace emm::run

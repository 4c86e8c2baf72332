#pragma once

namespace emm::run {

// Whether `path` is a file of the CUDA driver, by its name.
bool is_driver_file(const char *path);

// The path of a driver that this process has loaded, other than the library `own`; NULL: there is
// no other. Valid for as long as that driver is loaded.
const char *find_driver_beside(const char *own);

} // namespace emm::run

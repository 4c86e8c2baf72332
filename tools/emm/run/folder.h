#pragma once

#include <string>

namespace emm::tool {

// The folder of what a program loads to run on emm: the interposer, libcuda.so.1, and the audit
// library. Throws Refusal unless the interposer is there and the dynamic linker takes its path.
std::string find_run_folder();

} // namespace emm::tool

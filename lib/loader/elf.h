#pragma once

#include <emm/status.h>

#include <string>

namespace emm::loader {

// Checks that an open file is a whole shared library for this machine, before dlopen maps it: a
// truncated one would end the process with SIGBUS. Section headers are not needed and not looked
// at. `path` is for the refusal. *ret_build_id is the GNU build id in hexadecimal, or "".
emm_status check_elf(int descriptor, const std::string &path, std::string &ret_build_id);

} // namespace emm::loader

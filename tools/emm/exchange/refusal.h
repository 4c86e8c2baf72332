#pragma once

#include "problem.h"
#include "trace/builder.h"

#include <string>

namespace emm::tool {

// A file whose content is not what it should be: exit status 2. `place` says where, as in "line 3",
// and may be empty.
Failure bad_file(const std::string &name, const std::string &place, const Malformed &malformed);

// Options that do not go together: exit status 2.
Failure wrong_use(std::string message);

} // namespace emm::tool

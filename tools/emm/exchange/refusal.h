#pragma once

#include "problem.h"
#include "trace/builder.h"

#include <string>
#include <string_view>

namespace emm::tool {

// A file whose content is not what it should be: exit status 2. `place` says where, as in "line 3",
// and may be empty.
Failure bad_file(const std::string &name, const std::string &place, const Malformed &malformed);

// Options that do not go together: exit status 2.
Failure wrong_use(std::string message);

// What a file has in a place, in quotes, short and without control characters.
std::string in_quotes(std::string_view text);

} // namespace emm::tool

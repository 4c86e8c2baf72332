#pragma once

#include "child.h"
#include "commands.h"

#include <map>
#include <string>

namespace emm::tool {

using Environment = std::map<std::string, std::string>;

// The changes to a program's environment with which emm serves it. `before` is its environment
// without emm, `folder` is the run folder; `options.record` is an absolute path, and
// `options.release` names caches.
Changes run_environment(const Environment &before, const RunOptions &options,
                        const std::string &folder);

// The changes as lines for a POSIX shell: export NAME='value', or unset NAME if `before` has it.
std::string shell_lines(const Environment &before, const Changes &changes);

// EMM_LOG for the check that comes before the program: warnings and errors only, because the
// program's own lines repeat the rest.
std::string log_of_check(const std::string &log);

// Whether --release accepts the list.
bool are_caches(const std::string &list);

// The first character of a path that the dynamic linker takes for a separator or expands; 0: all
// are right.
char unfit_character(const std::string &path);

} // namespace emm::tool

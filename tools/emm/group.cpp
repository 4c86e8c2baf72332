#include "group.h"

#include <cerrno>
#include <cstdlib>
#include <fmt/format.h>
#include <unistd.h>

namespace emm::tool {
namespace {

std::string variable(const char *name) {
    const char *const value = std::getenv(name);
    return value ? value : "";
}

} // namespace

std::string open_group(const std::string &name, driver::GroupFile &ret_file,
                       std::string &ret_path) {
    const std::string chosen = variable("EMM_LIMIT_FOLDER"), runtime = variable("XDG_RUNTIME_DIR");
    std::string problem = driver::find_group(name, {chosen, runtime}, ret_path);
    if (problem.empty() && access(ret_path.c_str(), F_OK) != 0 && errno == ENOENT) {
        problem = fmt::format(
            "no group has the name '{}': {} does not exist (EMM_LIMIT_FOLDER names another folder)",
            name, ret_path);
    }
    problem = problem.empty() ? ret_file.open(ret_path, false) : problem;
    if (problem.empty()) {
        ret_file.take_back_dead();
    }
    return problem;
}

} // namespace emm::tool

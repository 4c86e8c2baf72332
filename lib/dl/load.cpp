#include "dl/load.h"

#include "observe/log.h"
#include "observe/text.h"

#include <emm/plugin.h>

#include <cstdlib>
#include <cxxabi.h>
#include <dlfcn.h>
#include <exception>
#include <fmt/format.h>
#include <unistd.h>

namespace emm::dl {
namespace {

[[noreturn]] void end_process(const std::string &what, const std::string &thrown) {
    const std::string sentence = observe::one_line(
        fmt::format("{}: dlopen: a constructor in it, or in a library that it needs, {}; "
                    "the dynamic linker stays locked after that, so the process ends here",
                    what, thrown));
    observe::log(EMM_LOG_ERROR, sentence);
    const std::string line = "emm: " + sentence + "\n"; // the log may go elsewhere, or nowhere
    if (write(STDERR_FILENO, line.data(), line.size()) < 0) {
        std::abort();
    }
    std::abort();
}

} // namespace

void *load_library(const std::string &path, const std::string &what) {
    // dlopen is declared not to throw, so around a direct call the compiler would drop the catch.
    static void *(*volatile const open)(const char *, int) = dlopen;
    observe::log(EMM_LOG_DEBUG, "{}: loading {}", what, path);
    try {
        return open(path.c_str(), RTLD_NOW | RTLD_LOCAL | RTLD_NODELETE);
    } catch (const abi::__forced_unwind &) {
        end_process(what, "ended its thread");
    } catch (const std::exception &exception) {
        end_process(what, fmt::format("threw an exception: {}", observe::what_of(exception)));
    } catch (...) {
        end_process(what, "threw an exception that is not a std::exception");
    }
}

void *find_in_process(const char *name) noexcept {
    return dlsym(RTLD_DEFAULT, name);
}

} // namespace emm::dl

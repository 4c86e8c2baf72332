#pragma once

#include <string_view>

namespace emm::observe {

// Whether a file of Python is an installed package's, the standard library's, the interpreter's own
// (<frozen importlib>) or emm's: calls in it are made on behalf of a program's own lines.
inline bool is_installed_python(std::string_view file) {
    for (const std::string_view part :
         {"/site-packages/", "/dist-packages/", "/lib/python3", "/python/emm/"}) {
        if (file.find(part) != std::string_view::npos) {
            return true;
        }
    }
    return file.empty() || file.front() == '<';
}

} // namespace emm::observe

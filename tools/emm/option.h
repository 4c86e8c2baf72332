#pragma once

#include <CLI/CLI.hpp>
#include <algorithm>
#include <string>

namespace emm::tool {

// "--limit SECONDS": the name of an option, and the word that stands for its value. A flag has no
// such word.
template <class Value>
CLI::Option *option(CLI::App *command, const std::string &what, Value &value,
                    const std::string &help) {
    const size_t space = std::min(what.find(' '), what.size());
    return command->add_option(what.substr(0, space), value, help)
        ->option_text(space == what.size() ? " " : what.substr(space + 1));
}

} // namespace emm::tool

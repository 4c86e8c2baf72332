#pragma once

#include <string>

namespace CLI {
class App;
}

namespace emm::tool::manual {

// What a build generates from the command line's description: "man" (emm.1), "man-COMMAND",
// "bash", "zsh" or "fish". Throws Failure for what is none of them.
std::string generate(const CLI::App &app, const std::string &what);

// The parts of it.
std::string man_page(const CLI::App &app, const std::string &command);
std::string bash_completion(const CLI::App &app);
std::string zsh_completion(const CLI::App &app);
std::string fish_completion(const CLI::App &app);

} // namespace emm::tool::manual

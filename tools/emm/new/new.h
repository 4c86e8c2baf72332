#pragma once

#include <string>

namespace CLI {
class App;
} // namespace CLI

namespace emm::tool {

struct NewOptions {
    std::string name;
    bool c = false, cpp = false, cmake = false, meson = false;
    bool json = false;
};

CLI::App *add_new_command(CLI::App &app, NewOptions &options);

// Writes a plugin's project into a folder of its name. Returns the exit status; throws Failure.
int run_new(const NewOptions &options);

} // namespace emm::tool

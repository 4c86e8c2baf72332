#pragma once

#include <string>
#include <vector>

namespace emm::tool {

struct NewOptions {
    std::string name;
    bool c = false, cpp = false, cmake = false, meson = false;
    bool json = false;
};

// Writes a plugin's project into a folder of its name. Returns the exit status; throws Failure.
int run_new(const NewOptions &options);

enum class Language { c, cpp };
enum class Builder { meson, cmake };

struct ProjectFile {
    std::string name, text;
};

// Why no plugin can be called `name`, in one sentence; "" if one can.
std::string plugin_name_problem(const std::string &name);

// A plugin's project: the template, renamed, with the files that its builder reads.
std::vector<ProjectFile> project_files(const std::string &name, Language language, Builder builder);

} // namespace emm::tool

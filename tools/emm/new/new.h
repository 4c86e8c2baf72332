#pragma once

#include <string>
#include <vector>

namespace emm::tool {

enum class Language { c, cpp, layer }; // a layer, in C
enum class Builder { meson, cmake };

struct ProjectFile {
    std::string name, text;
};

// Why no plugin can be called `name`, in one sentence; "": the name is right.
std::string plugin_name_problem(const std::string &name);

// A plugin's project: the template, renamed, with the files that its builder reads.
std::vector<ProjectFile> project_files(const std::string &name, Language language, Builder builder);

} // namespace emm::tool

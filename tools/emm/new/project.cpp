#include "new/new.h"

#include <algorithm>
#include <fmt/format.h>

namespace emm::tool {
namespace {

struct TemplateFile {
    const char *folder, *name, *text;
};

constexpr TemplateFile template_files[] = {
#include "templates.inc"
};

constexpr size_t longest_name = 64;
// A plugin of such a name would hide the plugin that comes with emm.
constexpr const char *bundled[] = {
#include "bundled.inc"
};
// CMake keeps these names of targets for itself, Meson some of them.
constexpr const char *reserved[] = {"all",           "benchmark",  "clean",   "dist",
                                    "edit_cache",    "help",       "install", "package",
                                    "rebuild_cache", "scan-build", "test",    "uninstall"};

bool is_letter_or_digit(char c) {
    return (c >= 'a' && c <= 'z') || (c >= '0' && c <= '9');
}

// Whether the loader takes this character in the name of a plugin's table.
bool may_be_in_name(char c) {
    return is_letter_or_digit(c) || c == '-' || c == '_' || c == '.';
}

template <size_t N> bool is_one_of(const std::string &name, const char *const (&names)[N]) {
    return std::find(std::begin(names), std::end(names), name) != std::end(names);
}

void replace_all(std::string &text, const std::string &old, const std::string &with) {
    for (size_t at = 0; (at = text.find(old, at)) != std::string::npos; at += with.size()) {
        text.replace(at, old.size(), with);
    }
}

bool belongs(const std::string &file, Builder builder) {
    if (file == "CMakeLists.txt") {
        return builder == Builder::cmake;
    }
    // emm_add_plugin brings the version script along.
    return builder == Builder::meson || (file != "meson.build" && file != "plugin.map");
}

} // namespace

std::string plugin_name_problem(const std::string &name) {
    const auto unfit = std::find_if_not(name.begin(), name.end(), may_be_in_name);
    if (name.empty() || !is_letter_or_digit(name.front()) || unfit != name.end()) {
        return fmt::format("expected a name of a-z, 0-9, '-', '_' and '.' that begins with a "
                           "letter or a digit, found '{}'",
                           name);
    }
    if (name.size() > longest_name) {
        return fmt::format("expected a name of at most {} characters, found {}", longest_name,
                           name.size());
    }
    if (is_one_of(name, bundled)) {
        return fmt::format("'{}' is a plugin of emm; choose another name", name);
    }
    if (is_one_of(name, reserved)) {
        return fmt::format("CMake or Meson reserves '{}'; choose another name", name);
    }
    return "";
}

std::vector<ProjectFile> project_files(const std::string &name, Language language,
                                       Builder builder) {
    const std::string folder = language == Language::c     ? "template-c"
                               : language == Language::cpp ? "template-cpp"
                                                           : "template-layer";
    std::vector<ProjectFile> files;
    for (const TemplateFile &file : template_files) {
        if (file.folder == folder && belongs(file.name, builder)) {
            std::string text = file.text;
            replace_all(text, " Copy this folder, rename things, and\n", "\n");
            replace_all(text, folder, name);
            if (language == Language::layer) { // its source is that of a bundled layer
                replace_all(text, "/* count: ", "/* " + name + ": ");
                replace_all(text, "\"count", "\"" + name);
            }
            files.push_back({file.name, std::move(text)});
        }
    }
    return files;
}

} // namespace emm::tool

#include "new/new.h"

#include "commands.h"
#include "exchange/output.h"
#include "json.h"
#include "new/prefix.h"
#include "print.h"
#include "problem.h"
#include "run/program.h"

#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <dlfcn.h>
#include <filesystem>
#include <fmt/format.h>
#include <nlohmann/json.hpp>
#include <sys/stat.h>

namespace emm::tool {
namespace {

namespace fs = std::filesystem;

Failure failure(const char *stage, const std::string &path, std::string message) {
    return Failure({.stage = stage, .message = std::move(message), .path = path});
}

// Only this call can tell that the folder is new: another program may make the folder at any time.
void make_folder(const std::string &folder) {
    if (mkdir(folder.c_str(), 0777) == 0) {
        return;
    }
    const int error = errno;
    throw failure(
        "run", folder,
        error == EEXIST
            ? fmt::format("new: '{}' exists already, and is left as it is", folder)
            : fmt::format("new: cannot make the folder {}: {}", folder, std::strerror(error)));
}

void write_file(const std::string &path, const std::string &text) {
    Output output(path);
    output.write(text);
    output.finish();
}

// Writes all files, or leaves none.
void write_project(const std::string &folder, const std::vector<ProjectFile> &files) {
    make_folder(folder);
    try {
        for (const ProjectFile &file : files) {
            write_file(folder + "/" + file.name, file.text);
        }
    } catch (...) {
        std::error_code ignored;
        fs::remove_all(folder, ignored);
        throw;
    }
}

std::string environment(const char *name) {
    const char *const value = std::getenv(name);
    return value ? value : "";
}

// Puts `folder` first in a list of folders.
std::string export_step(const char *variable, const std::string &folder) {
    return fmt::format("  export {0}={1}${{{0}:+:${0}}}\n", variable, shell_quoted(folder));
}

// With this, Meson finds the emm that the tool belongs to.
std::string pkg_config_step(const dl::Home &home) {
    const std::string folder = pkg_config_folder(home);
    return folder.empty() || is_searched(folder, environment("PKG_CONFIG_PATH"))
               ? ""
               : export_step("PKG_CONFIG_PATH", folder);
}

// The same for CMake.
std::string cmake_step(const dl::Home &home) {
    const std::string prefix = cmake_prefix(home);
    if (prefix.empty()) {
        return "  # CMAKE_PREFIX_PATH has to name the prefix of an installed emm: this one has no "
               "files for CMake\n";
    }
    return is_searched_by_cmake(prefix, environment("CMAKE_PREFIX_PATH"), environment("PATH"))
               ? ""
               : export_step("CMAKE_PREFIX_PATH", prefix);
}

// The command that starts this tool in a shell: its path, if PATH does not lead to it.
std::string tool_command() {
    std::error_code error;
    const std::string own = fs::read_symlink("/proc/self/exe", error).string();
    const bool is_found = find_program("emm", std::getenv("PATH")).error == 0;
    return is_found || own.empty() ? "emm" : shell_quoted(own);
}

// The setting for a program of the plugin's, on a machine without a GPU and without another chosen
// driver.
std::string simulator_setting() {
    const bool has_gpu =
        fs::exists("/dev/nvidiactl") || fs::exists("/dev/dxg"); // the latter in WSL
    return has_gpu || !environment("EMM_DRIVER").empty() ? "" : "EMM_DRIVER=sim ";
}

std::string next_steps(const std::string &name, Language language, Builder builder) {
    const dl::Home home = dl::home_of(dlsym(RTLD_DEFAULT, "emm_version"));
    const std::string steps =
        builder == Builder::meson
            ? pkg_config_step(home) + "  meson setup build && meson compile -C build\n"
            : cmake_step(home) + "  cmake -B build && cmake --build build\n";
    if (language == Language::layer) {
        return fmt::format(
            "  cd {0}\n{1}  export EMM_PLUGIN_PATH=$PWD/build\n"
            "  EMM_DRIVER=sim {2} check {0}+pool\n  {3}EMM_PLUGIN={0}+pool PROGRAM\n",
            name, steps, tool_command(), simulator_setting());
    }
    const std::string library = fmt::format("$PWD/build/libemm-{}.so", name);
    return fmt::format("  cd {0}\n{1}  EMM_DRIVER=sim {2} check {3}\n  {4}EMM_PLUGIN={3} PROGRAM\n",
                       name, steps, tool_command(), library, simulator_setting());
}

} // namespace

int run_new(const NewOptions &options) {
    const std::string problem = plugin_name_problem(options.name);
    if (!problem.empty()) {
        throw failure("usage", "", "new: " + problem);
    }
    const Builder builder = options.cmake ? Builder::cmake : Builder::meson;
    const Language language = options.layer ? Language::layer
                              : options.c   ? Language::c
                                            : Language::cpp;
    const std::vector<ProjectFile> files = project_files(options.name, language, builder);
    write_project(options.name, files);
    if (!options.json) {
        print(fmt::format("{}: a {}. Next:\n{}", options.name,
                          options.layer ? "layer that counts requests"
                                        : "plugin that gives out cuMemAlloc's memory",
                          next_steps(options.name, language, builder)));
        return 0;
    }
    Json names = Json::array();
    for (const ProjectFile &file : files) {
        names.push_back(file.name);
    }
    print_json({{"folder", fs::absolute(options.name).string()}, {"files", names}});
    return 0;
}

} // namespace emm::tool

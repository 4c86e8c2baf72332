#include "spec.h"

#include "loader/spec.h"
#include "loader/text.h"
#include "observe/text.h"

#include <filesystem>
#include <fmt/ranges.h>

namespace emm::tool {
namespace {

constexpr char separator = ';'; // written %3B in a path

std::string with_absolute_path(std::string_view spec, const std::string &folder) {
    const size_t begin = loader::find_plugin(spec);
    const std::string_view layers = spec.substr(0, begin);
    spec.remove_prefix(begin);
    const std::string_view plugin = spec.substr(0, spec.find(':'));
    const bool is_relative = plugin.find('/') != std::string_view::npos && plugin.front() != '/';
    if (!is_relative) {
        return std::string(layers).append(spec);
    }
    const std::filesystem::path path = loader::encode(folder) + "/" + std::string(plugin);
    return std::string(layers) + path.lexically_normal().string() +
           std::string(spec.substr(plugin.size()));
}

} // namespace

bool is_list(std::string_view specs) {
    return specs.find(separator) != std::string_view::npos;
}

std::string with_absolute_paths(std::string_view specs, const std::string &folder) {
    std::vector<std::string> list = observe::split(specs, separator);
    for (std::string &spec : list) {
        spec = with_absolute_path(spec, folder);
    }
    return fmt::format("{}", fmt::join(list, std::string(1, separator)));
}

void make_paths_absolute(std::string &specs) {
    std::error_code error;
    const std::filesystem::path folder = std::filesystem::current_path(error);
    if (!error) {
        specs = with_absolute_paths(specs, folder.string());
    }
}

} // namespace emm::tool

#include "spec.h"

#include "loader/spec.h"
#include "loader/text.h"

#include <algorithm>
#include <filesystem>

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
    std::string result;
    for (size_t begin = 0; begin <= specs.size();) {
        const size_t end = std::min(specs.find(separator, begin), specs.size());
        result += begin == 0 ? "" : std::string(1, separator);
        result += with_absolute_path(specs.substr(begin, end - begin), folder);
        begin = end + 1;
    }
    return result;
}

void make_paths_absolute(std::string &specs) {
    std::error_code error;
    const std::filesystem::path folder = std::filesystem::current_path(error);
    if (!error) {
        specs = with_absolute_paths(specs, folder.string());
    }
}

} // namespace emm::tool

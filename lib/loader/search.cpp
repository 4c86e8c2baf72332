#include "loader/search.h"

#include "dl/home.h"
#include "loader/refusal.h"
#include "loader/text.h"
#include "observe/environment.h"
#include "observe/log.h"
#include "observe/process.h"
#include "observe/suggest.h"
#include "observe/text.h"

#include <emm/plugin.h>
#include <fmt/format.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <dirent.h>
#include <filesystem>
#include <memory>
#include <sys/stat.h>
#include <unistd.h>

namespace emm::loader {
namespace {

namespace fs = std::filesystem;

constexpr std::string_view prefix = "libemm-";
constexpr std::string_view suffix = ".so";

// A folder of plugin files, or of one folder for each plugin.
struct Place {
    std::string folder;
    const char *what;
    bool nested = false;

    std::string file(const std::string &name) const {
        return folder + (nested ? "/" + name : "") + "/libemm-" + name + ".so";
    }
};

std::vector<Place> places(const Search &search) {
    std::vector<Place> all;
    const auto add = [&all](Place place) {
        if (!place.folder.empty() && std::none_of(all.begin(), all.end(), [&](const Place &other) {
                return other.folder == place.folder;
            })) {
            all.push_back(std::move(place));
        }
    };
    for (const std::string &folder : search.path) {
        add({folder, "EMM_PLUGIN_PATH"});
    }
    if (search.build_tree) {
        const std::string plugins = fs::path(search.library_folder).parent_path() / "plugins";
        add({plugins, "the build tree", true});
        add({plugins + "/layers", "the build tree"});
        return all;
    }
    if (!search.library_folder.empty()) {
        add({search.library_folder + "/emm", "the folder emm beside libemm.so"});
    }
    add({search.plugin_folder, "the configured plugin folder"});
    return all;
}

// NAME in "libemm-NAME.so"; "" for other file names.
std::string plugin_name(const std::string &file) {
    if (file.size() <= prefix.size() + suffix.size() || !file.starts_with(prefix) ||
        !file.ends_with(suffix)) {
        return "";
    }
    return file.substr(prefix.size(), file.size() - prefix.size() - suffix.size());
}

// `file` without its prefix "libemm-" and its suffix ".so", as far as it has them.
std::string bare_name(std::string file) {
    if (file.size() > suffix.size() && file.ends_with(suffix)) {
        file.resize(file.size() - suffix.size());
    }
    const bool prefixed = file.size() > prefix.size() && file.starts_with(prefix);
    return prefixed ? file.substr(prefix.size()) : file;
}

struct CloseFolder {
    void operator()(DIR *opened) const { closedir(opened); }
};

// std::filesystem's iterator would not do: without memory it ends the process.
std::vector<std::string> entries(const std::string &folder) {
    std::vector<std::string> names;
    const std::unique_ptr<DIR, CloseFolder> opened(opendir(folder.c_str()));
    while (const dirent *const entry = opened ? readdir(opened.get()) : nullptr) {
        const std::string_view name = entry->d_name;
        if (name != "." && name != "..") {
            names.emplace_back(name);
        }
    }
    std::sort(names.begin(), names.end());
    return names;
}

bool is_file(const std::string &path) {
    struct stat status;
    return stat(path.c_str(), &status) == 0 && S_ISREG(status.st_mode);
}

std::vector<std::string> candidate_names(const Search &search) {
    std::vector<std::string> names;
    for_each_candidate(search, [&names](const std::string &name, const std::string &) {
        names.push_back(name);
        return true;
    });
    return names;
}

// Ways to write the path that a relative one was probably meant to be.
std::string absolute_hint(const Search &search, const std::string &name,
                          const std::string &absolute) {
    const std::string file = fs::path(name).filename();
    const std::string bare = encode(bare_name(file));
    const std::vector<std::string> names = candidate_names(search);
    if (std::find(names.begin(), names.end(), bare) != names.end()) {
        return fmt::format("write {} for the plugin of that name, or {} for that file", bare,
                           encode(absolute));
    }
    const std::string hint = "write " + encode(absolute);
    return plugin_name(file).empty()
               ? hint
               : hint + ", or add its folder to EMM_PLUGIN_PATH and write " + bare;
}

emm_status refuse_relative(const Search &search, const std::string &name) {
    std::error_code error;
    const fs::path absolute = fs::absolute(name, error).lexically_normal();
    const std::string hint = error ? "" : absolute_hint(search, name, absolute.string());
    return refuse(
        {.code = EMM_E_PLUGIN_SPEC,
         .stage = "resolve",
         .path = name,
         .problem = "a relative path would depend on the working directory",
         .expected = error ? "an absolute path" : "the absolute path " + absolute.string(),
         .got = "'" + name + "'",
         .hint = hint});
}

emm_status refuse_unknown(const Search &search, const std::string &name,
                          std::vector<std::string> tried) {
    const std::vector<std::string> names = candidate_names(search);
    std::string hint = observe::suggestion(bare_name(name), names);
    if (hint.empty()) {
        hint = names.empty()
                   ? "no plugin is installed where emm looks; EMM_PLUGIN_PATH adds folders"
                   : "the plugins and layers found are " + observe::listed(names);
    }
    return refuse(
        {.code = EMM_E_PLUGIN_NOT_FOUND,
         .stage = "resolve",
         .problem = fmt::format("no {} is called '{}'{}", loaded_kind(), name, tried_places(tried)),
         .hint = std::move(hint),
         .tried = std::move(tried)});
}

// 0 or the errno of a look at the file.
int look_at(const std::string &path) {
    struct stat status;
    return lstat(path.c_str(), &status) == 0 ? 0 : errno;
}

emm_status find_name(const Search &search, const std::string &name, Found &ret) {
    std::vector<std::string> tried;
    for (const Place &place : places(search)) {
        const std::string path = place.file(name);
        tried.push_back(path);
        // Only an absent file means "look further". A broken entry is an error of its own, which
        // opening reports.
        if (const int error = look_at(path); error != ENOENT) {
            ret = {path, place.what, std::move(tried)};
            return error == 0 ? EMM_OK : refuse_open(ret, error);
        }
    }
    return refuse_unknown(search, name, std::move(tried));
}

std::vector<std::string> split_path(std::string_view text) {
    std::vector<std::string> folders;
    for (const std::string &folder : observe::split(text, ':')) {
        if (!folder.empty() && folder.front() != '/') {
            observe::log(EMM_LOG_WARN,
                         "EMM_PLUGIN_PATH: '{}' is ignored: expected an absolute path", folder);
        } else if (!folder.empty()) {
            folders.push_back(folder);
        }
    }
    return folders;
}

std::string reason(const Found &found, int error) {
    char target[256];
    const ssize_t length = readlink(found.path.c_str(), target, sizeof target);
    if (error == ENOENT && length > 0) {
        return fmt::format("a symbolic link to {}, which does not exist",
                           std::string_view(target, static_cast<size_t>(length)));
    }
    return std::strerror(error);
}

} // namespace

emm_status refuse_open(const Found &found, int error) {
    const bool denied = error == EACCES || error == EPERM;
    const bool missing = error == ENOENT || error == ENOTDIR || error == ELOOP ||
                         error == ENAMETOOLONG || error == ENXIO;
    return refuse(
        {.code = missing ? EMM_E_PLUGIN_NOT_FOUND : EMM_E_PLUGIN_UNLOADABLE,
         .stage = denied ? "permission" : "resolve",
         .path = found.path,
         .problem = "cannot open it",
         .got = reason(found, error),
         .hint = missing && found.path.find(".so+") != std::string::npos
                     ? "a + in a path belongs to the file; a layer goes by its bare name, and "
                       "EMM_PLUGIN_PATH names its folder"
                     : "",
         .tried = found.tried});
}

const Search &process_search() {
    static const auto *const search = new Search{
        .path = split_path(observe::environment("EMM_PLUGIN_PATH")),
        .library_folder = dl::home().folder,
        .plugin_folder = EMM_PLUGIN_DIR,
        .build_tree = dl::home().build_tree,
        .user = geteuid(),
        .allow_untrusted = observe::setting("EMM_ALLOW_UNTRUSTED") == "1",
        .elevated = observe::elevated(),
    };
    return *search;
}

emm_status find(const Search &search, const Spec &spec, Found &ret_found) {
    if (spec.is_path) {
        ret_found = {spec.name, "", {spec.name}};
        return EMM_OK;
    }
    const bool looks_like_a_file =
        spec.name.find('/') != std::string::npos || fs::path(spec.name).extension() == suffix;
    return looks_like_a_file ? refuse_relative(search, spec.name)
                             : find_name(search, spec.name, ret_found);
}

void for_each_candidate(const Search &search, const CandidateVisitor &visit) {
    for (const Place &place : places(search)) {
        for (const std::string &entry : entries(place.folder)) {
            const std::string name = place.nested ? entry : plugin_name(entry);
            if (!name.empty() && is_file(place.file(name)) && !visit(name, place.file(name))) {
                return;
            }
        }
    }
}

} // namespace emm::loader

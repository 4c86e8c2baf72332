#include "loader/file.h"

#include "loader/refusal.h"
#include "observe/log.h"

#include <emm/plugin.h>

#include <cerrno>
#include <cstdio>
#include <cstring>
#include <fcntl.h>
#include <filesystem>
#include <unistd.h>

namespace emm::loader {
namespace {

std::string parent(const std::string &path) {
    return std::filesystem::path(path).parent_path().string();
}

std::string octal(mode_t mode) {
    char text[16];
    snprintf(text, sizeof text, "%04o", static_cast<unsigned>(mode & 07777));
    return text;
}

emm_status refuse_open(const Found &found, int error) {
    const bool denied = error == EACCES || error == EPERM;
    return refuse({.code = denied ? EMM_E_PLUGIN_UNLOADABLE : EMM_E_PLUGIN_NOT_FOUND,
                   .stage = denied ? "permission" : "resolve",
                   .path = found.path,
                   .problem = "it cannot be opened",
                   .expected = "a readable file",
                   .got = std::strerror(error),
                   .tried = found.tried});
}

emm_status refuse_kind(const Found &found, mode_t mode) {
    return refuse({.code = EMM_E_PLUGIN_NOT_FOUND,
                   .stage = "resolve",
                   .path = found.path,
                   .problem = "it is no regular file",
                   .expected = "a shared library",
                   .got = S_ISDIR(mode) ? "a directory" : "a device, pipe or socket",
                   .hint = S_ISDIR(mode) ? "add the folder to EMM_PLUGIN_PATH and name the plugin, "
                                           "or give the path of the file in it"
                                         : "",
                   .tried = found.tried});
}

// What could let somebody else decide what gets loaded; "" if nothing does.
struct Distrust {
    std::string problem, expected, got, hint;
};

// A folder that anybody may write to is refused even if it is sticky, as /tmp is: there nobody can
// replace the plugin, but everybody can put down a library that the plugin's RUNPATH would find.
Distrust distrust(const struct stat &status, const std::string &path, uid_t user) {
    const std::string what = S_ISDIR(status.st_mode) ? "its folder " + path : "it";
    if (status.st_mode & S_IWOTH) {
        return {what + " is writable by everybody", "no write permission for others",
                "mode " + octal(status.st_mode), "chmod o-w " + path};
    }
    if (status.st_uid != 0 && status.st_uid != user) {
        return {what + " belongs to somebody else", "user 0 or " + std::to_string(user),
                "user " + std::to_string(status.st_uid),
                "install the plugin as root or as the user who runs the program"};
    }
    return {};
}

} // namespace

PluginFile::~PluginFile() {
    if (descriptor_ >= 0) {
        close(descriptor_);
    }
}

emm_status PluginFile::open(const Found &found) {
    // O_NONBLOCK: a named pipe would wait for its writer.
    descriptor_ = ::open(found.path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOCTTY);
    if (descriptor_ < 0 || fstat(descriptor_, &status_) != 0) {
        return refuse_open(found, errno);
    }
    if (!S_ISREG(status_.st_mode)) {
        return refuse_kind(found, status_.st_mode);
    }
    std::error_code error;
    path_ = std::filesystem::canonical(found.path, error).string();
    return error ? refuse_open(found, error.value()) : check_unchanged();
}

emm_status PluginFile::check_trust(const Search &search) const {
    Distrust found = distrust(status_, path_, search.user);
    if (found.problem.empty()) {
        struct stat folder = {};
        if (stat(parent(path_).c_str(), &folder) != 0) {
            return refuse_open({path_, "", {path_}}, errno);
        }
        found = distrust(folder, parent(path_), search.user);
    }
    if (found.problem.empty()) {
        return EMM_OK;
    }
    if (search.allow_untrusted && !search.elevated) {
        observe::log(EMM_LOG_WARN, "plugin " + path_ + ": " + found.problem +
                                       "; loaded because EMM_ALLOW_UNTRUSTED=1");
        return EMM_OK;
    }
    return refuse({.code = EMM_E_PLUGIN_UNTRUSTED,
                   .stage = "permission",
                   .path = path_,
                   .problem = found.problem,
                   .expected = found.expected,
                   .got = found.got,
                   .hint = found.hint + (search.elevated ? "" : ", or set EMM_ALLOW_UNTRUSTED=1"),
                   .tried = {path_}});
}

emm_status PluginFile::check_unchanged() const {
    struct stat now = {};
    if (stat(path_.c_str(), &now) == 0 && FileIdentity{now.st_dev, now.st_ino} == identity() &&
        now.st_size == status_.st_size && now.st_mtim.tv_sec == status_.st_mtim.tv_sec &&
        now.st_mtim.tv_nsec == status_.st_mtim.tv_nsec) {
        return EMM_OK;
    }
    return refuse({.code = EMM_E_PLUGIN_UNTRUSTED,
                   .stage = "permission",
                   .path = path_,
                   .problem = "the file was replaced while it was being loaded",
                   .expected = "the file that was checked",
                   .got = "another one",
                   .hint = "try again",
                   .tried = {path_}});
}

} // namespace emm::loader

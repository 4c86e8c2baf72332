#include "loader/file.h"

#include "dl/trust.h"
#include "loader/refusal.h"
#include "observe/log.h"

#include <emm/plugin.h>

#include <cerrno>
#include <fcntl.h>
#include <filesystem>
#include <unistd.h>

namespace emm::loader {
namespace {

emm_status refuse_kind(const Found &found, mode_t mode) {
    return refuse({.code = EMM_E_PLUGIN_NOT_FOUND,
                   .stage = "resolve",
                   .path = found.path,
                   .problem = "it is of the wrong kind",
                   .expected = "a shared library",
                   .got = S_ISDIR(mode) ? "a directory" : "a device, pipe or socket",
                   .hint = S_ISDIR(mode) ? "add the folder to EMM_PLUGIN_PATH and name the plugin, "
                                           "or give the path of the file in it"
                                         : "",
                   .tried = found.tried});
}

} // namespace

emm_status PluginFile::open(const Found &found) {
    named_ = found.path;
    // O_NONBLOCK, because opening a named pipe would wait for its writer.
    file_ = observe::File(::open(found.path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOCTTY));
    if (!file_ || fstat(file_.number(), &status_) != 0) {
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
    const dl::Distrust found = dl::distrust(named_, search.user);
    if (found.problem.empty()) {
        // From here on only root and the user could replace the file.
        return check_unchanged();
    }
    if (found.error != 0) {
        return refuse_open({named_, "", {named_}}, found.error);
    }
    if (search.allow_untrusted && !search.elevated) {
        observe::log(EMM_LOG_WARN, "{} {}: {}; loaded because EMM_ALLOW_UNTRUSTED=1", loaded_kind(),
                     path_, found.problem);
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
    const bool is_there = stat(path_.c_str(), &now) == 0;
    if (!is_there && errno != ENOENT && errno != ENOTDIR) {
        return refuse_open({path_, "", {path_}}, errno);
    }
    if (is_there && FileIdentity{now.st_dev, now.st_ino} == identity() &&
        now.st_size == status_.st_size && now.st_mtim.tv_sec == status_.st_mtim.tv_sec &&
        now.st_mtim.tv_nsec == status_.st_mtim.tv_nsec) {
        return EMM_OK;
    }
    return refuse({.code = EMM_E_PLUGIN_UNTRUSTED,
                   .stage = "permission",
                   .path = path_,
                   .problem = "the file was replaced while it was being loaded",
                   .hint = "try again",
                   .tried = {path_}});
}

} // namespace emm::loader

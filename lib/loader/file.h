#pragma once

#include "loader/search.h"
#include "observe/file.h"

#include <emm/status.h>

#include <compare>
#include <string>
#include <sys/stat.h>

namespace emm::loader {

// What makes two names one file.
struct FileIdentity {
    dev_t device = 0;
    ino_t inode = 0;
    auto operator<=>(const FileIdentity &) const = default;
};

// A plugin file, held open while it is being checked, so that all checks are about the same file.
class PluginFile {
public:
    // Opens what `found` names; refuses what is missing, unreadable or not a regular file.
    emm_status open(const Found &found);

    // Refuses a file that another user than root and `search.user` could have written, or could
    // put another one in the place of.
    emm_status check_trust(const Search &search) const;

    // Refuses if the real path has come to mean another file since it was opened.
    emm_status check_unchanged() const;

    int descriptor() const { return file_.number(); }
    const std::string &path() const { return path_; }
    FileIdentity identity() const { return {status_.st_dev, status_.st_ino}; }

private:
    observe::File file_;
    struct stat status_ = {};
    std::string named_; // as it was found
    std::string path_;  // the real one: symbolic links resolved
};

// Checks that an open file is a whole shared library for this machine, before dlopen maps it: a
// truncated one would end the process with SIGBUS. Section headers are not needed and not looked
// at. `path` is for the refusal. *ret_build_id is the GNU build id in hexadecimal, or "".
emm_status check_elf(int descriptor, const std::string &path, std::string &ret_build_id);

} // namespace emm::loader

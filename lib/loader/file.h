#pragma once

#include "loader/search.h"
#include "observe/file.h"

#include <emm/status.h>

#include <compare>
#include <string>
#include <sys/stat.h>

namespace emm::loader {

// Two names with an equal identity are one file.
struct FileIdentity {
    dev_t device = 0;
    ino_t inode = 0;
    auto operator<=>(const FileIdentity &) const = default;
};

// A plugin file, held open during all checks, so that they are about the same file.
class PluginFile {
public:
    // Opens the file of `found`; refuses a missing or unreadable file, and any other than a regular
    // one.
    emm_status open(const Found &found);

    // Refuses a file that a user other than root and `search.user` could have written or could
    // replace.
    emm_status check_trust(const Search &search) const;

    // Refuses if the real path leads to another file than the opened one.
    emm_status check_unchanged() const;

    int descriptor() const { return file_.number(); }
    const std::string &path() const { return path_; }
    FileIdentity identity() const { return {status_.st_dev, status_.st_ino}; }

private:
    observe::File file_;
    struct stat status_ = {};
    std::string named_; // the path as it was found
    std::string path_;  // the real path: symbolic links resolved
};

// Checks that an open file is a whole shared library for this machine, before dlopen maps it: a
// truncated file would end the process with SIGBUS. Section headers are not needed and not read.
// `path` is for the refusal. *ret_build_id is the GNU build id in hexadecimal, or "".
emm_status check_elf(int descriptor, const std::string &path, std::string &ret_build_id);

} // namespace emm::loader

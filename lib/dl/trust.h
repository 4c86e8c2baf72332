#pragma once

#include <string>
#include <sys/stat.h>
#include <sys/types.h>

namespace emm::dl {

// Why a file that is about to be loaded into the process is not trusted; an empty `problem` means
// that it is.
struct Distrust {
    std::string problem, expected, got, hint;
    int error = 0; // the path cannot be followed to its end: an errno
};

// What a file, folder or symbolic link on the way to a library is to that library.
enum class Role { file, own_folder, folder_above, link };

// The rule for one of them. Root and `user` may own it; no other user may be able to change it, by
// the permission for all or by that for a group that has other members. In a folder above that is
// sticky, as /tmp is, other users can put down files and replace none: that is allowed there, and
// not in the library's own folder, where what its RUNPATH finds could be put down.
Distrust distrust_of(const struct stat &status, Role role, const std::string &path, uid_t user,
                     bool group_is_private);

// Follows `path` from the root as the kernel does, and applies the rule to each folder and symbolic
// link on the way and to the file. If all of them are trusted, only root and `user` could make
// `path` lead to another file.
Distrust distrust(const std::string &path, uid_t user);

// Why a library that a setting names by its absolute path is not loaded; "": it may be, or dlopen
// tells what is wrong. With `allows_untrusted` distrust is lifted, and `ret_lifted` says what it
// was.
std::string refusal_of(const std::string &path, uid_t user, bool allows_untrusted,
                       std::string &ret_lifted);

// Whether `group` has no member besides root and `user`, as far as the two files tell. A group that
// they do not know could have any.
bool is_private_group(gid_t group, uid_t user, const std::string &passwd = "/etc/passwd",
                      const std::string &groups = "/etc/group");

} // namespace emm::dl

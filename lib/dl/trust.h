#pragma once

#include <string>
#include <sys/stat.h>
#include <sys/types.h>

namespace emm::dl {

// Why a file that is about to be loaded is not trusted. An empty `problem` means that it is
// trusted.
struct Distrust {
    std::string problem, expected, got, hint;
    int error = 0; // an errno: the path cannot be followed to its end
};

// The role of a file, folder or symbolic link on the way to a library.
enum class Role { file, own_folder, folder_above, link };

// The rule for one file, folder or link. Root and `user` may own it. No other user may be able to
// change it, by the permissions for all or for a group with other members. In a sticky folder
// above, such as /tmp, other users can add files but replace none. That is allowed above, but not
// in the library's own folder, because its RUNPATH could find an added file.
Distrust distrust_of(const struct stat &status, Role role, const std::string &path, uid_t user,
                     bool group_is_private);

// Follows `path` from the root as the kernel does, and applies the rule to each folder and symbolic
// link on the way and to the file. If all of them are trusted, only root and `user` could make
// `path` lead to another file.
Distrust distrust(const std::string &path, uid_t user);

// Why a library that a setting names by its absolute path must not be loaded. "": it may be loaded,
// or dlopen will say what is wrong. With `allows_untrusted` distrust is ignored, and `ret_lifted`
// describes it.
std::string refusal_of(const std::string &path, uid_t user, bool allows_untrusted,
                       std::string &ret_lifted);

// Whether `group` has no member besides root and `user`, as far as the two files tell. A group that
// is in neither file may have any members.
bool is_private_group(gid_t group, uid_t user, const std::string &passwd = "/etc/passwd",
                      const std::string &groups = "/etc/group");

} // namespace emm::dl

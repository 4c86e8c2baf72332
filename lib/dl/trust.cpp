#include "dl/trust.h"

#include "observe/read_write.h"
#include "observe/text.h"

#include <cerrno>
#include <climits>
#include <cstring>
#include <deque>
#include <fmt/format.h>
#include <set>
#include <string_view>
#include <sys/xattr.h>
#include <unistd.h>
#include <vector>

namespace emm::dl {
namespace {

using observe::split;

// The lines of an account file, split into fields; lines with too few fields are left out. False:
// the file is there and cannot be read.
bool read_fields(const std::string &path, std::vector<std::vector<std::string>> &ret_lines) {
    constexpr size_t fewest = 4; // a line of /etc/group has so many, one of /etc/passwd more
    std::string text;
    const int error = observe::read_file(path, text);
    for (const std::string &line : split(text, '\n')) {
        std::vector<std::string> fields = split(line, ':');
        if (fields.size() >= fewest) {
            ret_lines.push_back(std::move(fields));
        }
    }
    return error == 0 || error == ENOENT;
}

std::string name_in_sentence(Role role, const std::string &path) {
    switch (role) {
    case Role::own_folder:
        return "its folder " + path;
    case Role::folder_above:
        return "the folder " + path + " above it";
    case Role::link:
        return "the symbolic link " + path;
    default:
        return "it";
    }
}

// An access control list can let more users write than the mode tells. If emm
// cannot read the list, emm assumes that there is one.
bool has_access_list(const std::string &path) {
    const ssize_t size = lgetxattr(path.c_str(), "system.posix_acl_access", nullptr, 0);
    return size > 0 || (size < 0 && errno != ENODATA && errno != ENOTSUP);
}

// A walk along a path: the part that has been followed, without symbolic links, and the part that
// is left.
class PathWalk {
public:
    struct Entry {
        std::string path;
        struct stat status = {};
        Role role = Role::file;
    };

    // Follows the path to its end. Returns 0, or the errno of the step that failed.
    int follow(const std::string &path) {
        go_on(path);
        int error = pass("/");
        while (error == 0 && !rest_.empty()) {
            const std::string name = std::move(rest_.front());
            rest_.pop_front();
            error = step(name);
        }
        for (Entry &entry : passed_) {
            if (error == 0 && entry.role == Role::folder_above && entry.path == parent()) {
                entry.role = Role::own_folder;
            }
        }
        return error;
    }

    const std::vector<Entry> &passed() const { return passed_; }

private:
    std::string parent() const {
        const size_t slash = here_.rfind('/');
        return slash == 0 || slash == std::string::npos ? "/" : here_.substr(0, slash);
    }

    void go_on(std::string_view path) {
        const std::vector<std::string> names = split(path, '/');
        rest_.insert(rest_.begin(), names.begin(), names.end());
        if (path.front() == '/') {
            here_.clear();
        }
    }

    int step(const std::string &name) {
        if (name.empty() || name == ".") {
            return 0;
        }
        if (name == "..") {
            here_ = parent() == "/" ? "" : parent();
            return 0;
        }
        const std::string next = here_ + "/" + name;
        if (const int error = pass(next)) {
            return error;
        }
        if (passed_.back().role == Role::link) {
            return turn(next);
        }
        here_ = next;
        return 0;
    }

    int pass(const std::string &path) {
        Entry entry{path};
        if (lstat(path.c_str(), &entry.status) != 0) {
            return errno;
        }
        entry.role = S_ISLNK(entry.status.st_mode)   ? Role::link
                     : S_ISDIR(entry.status.st_mode) ? Role::folder_above
                                                     : Role::file;
        passed_.push_back(std::move(entry));
        return 0;
    }

    int turn(const std::string &link) {
        constexpr int most_links = 40; // the kernel's limit
        char target[PATH_MAX];
        const ssize_t length = readlink(link.c_str(), target, sizeof target);
        if (length <= 0 || ++links_ > most_links) {
            return length < 0 ? errno : ELOOP;
        }
        go_on(std::string_view(target, static_cast<size_t>(length)));
        return 0;
    }

    std::string here_; // "" for the root
    std::deque<std::string> rest_;
    std::vector<Entry> passed_;
    int links_ = 0;
};

} // namespace

Distrust distrust_of(const struct stat &status, Role role, const std::string &path, uid_t user,
                     bool group_is_private) {
    const std::string what = name_in_sentence(role, path);
    const std::string users = user == 0 ? "user 0" : fmt::format("user 0 or {}", user);
    if (status.st_uid != 0 && status.st_uid != user) {
        return {what + " belongs to another user", users, fmt::format("user {}", status.st_uid),
                "install it as root or as the user who runs the program"};
    }
    // The mode of a link means nothing. In a sticky folder, only an entry's owner can replace the
    // entry.
    if (role == Role::link || (role == Role::folder_above && (status.st_mode & S_ISVTX))) {
        return {};
    }
    const mode_t mode = status.st_mode & 07777;
    if (status.st_mode & S_IWOTH) {
        return {what + " is writable by everybody", "no write permission for others",
                fmt::format("mode {:04o}", mode), "chmod o-w " + path};
    }
    if ((status.st_mode & S_IWGRP) && !group_is_private) {
        return {what + " is writable by a group that may have other members",
                "no write permission for the group, or a group of " + users + " alone",
                fmt::format("mode {:04o}, group {}", mode, status.st_gid), "chmod g-w " + path};
    }
    return {};
}

Distrust distrust(const std::string &path, uid_t user) {
    PathWalk walk;
    const int error = walk.follow(path);
    for (const PathWalk::Entry &entry : walk.passed()) {
        const bool asks_for_group = (entry.status.st_mode & S_IWGRP) != 0;
        const bool group_is_private = asks_for_group && !has_access_list(entry.path) &&
                                      is_private_group(entry.status.st_gid, user);
        Distrust found = distrust_of(entry.status, entry.role, entry.path, user, group_is_private);
        if (!found.problem.empty()) {
            return found;
        }
    }
    Distrust found;
    if (error != 0) {
        found.problem = "its path cannot be followed";
        found.error = error;
    }
    return found;
}

std::string refusal_of(const std::string &path, uid_t user, bool allows_untrusted,
                       std::string &ret_lifted) {
    if (path.find('$') != std::string::npos) {
        return "its path has a '$', which the dynamic linker would replace";
    }
    struct stat status = {};
    if (stat(path.c_str(), &status) == 0 && !S_ISREG(status.st_mode)) {
        return "it is not a regular file";
    }
    const Distrust found = distrust(path, user);
    if (found.problem.empty() || found.error == ENOENT || found.error == ENOTDIR) {
        return ""; // the dynamic linker says what is missing
    }
    if (found.error != 0) {
        return fmt::format("{}: {}", found.problem, std::strerror(found.error));
    }
    if (allows_untrusted) {
        ret_lifted = found.problem;
        return "";
    }
    return fmt::format("{}: expected {}, found {} ({}, or set EMM_ALLOW_UNTRUSTED=1)",
                       found.problem, found.expected, found.got, found.hint);
}

bool is_private_group(gid_t group, uid_t user, const std::string &passwd,
                      const std::string &groups) {
    const std::string number = fmt::format("{}", group), own = fmt::format("{}", user);
    std::set<std::string> trusted_names;
    std::vector<std::vector<std::string>> accounts, entries;
    if (!read_fields(passwd, accounts) || !read_fields(groups, entries)) {
        return false;
    }
    for (const std::vector<std::string> &account : accounts) {
        const bool trusted = account[2] == "0" || account[2] == own;
        if (account[3] == number && !trusted) {
            return false;
        }
        if (trusted) {
            trusted_names.insert(account[0]);
        }
    }
    bool known = false;
    for (const std::vector<std::string> &entry : entries) {
        if (entry[2] != number) {
            continue;
        }
        known = true;
        for (const std::string &member : split(entry[3], ',')) {
            if (!member.empty() && trusted_names.count(member) == 0) {
                return false;
            }
        }
    }
    return known;
}

} // namespace emm::dl

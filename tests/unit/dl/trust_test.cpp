// The rule for the users who could have written a library, one entry of its path at a time.
#include "dl/trust.h"

#include "support.h"

#include <unistd.h>

namespace emm::dl {
namespace {

constexpr uid_t user = 1000;

std::string problem(mode_t mode, uid_t owner, Role role, bool group_is_private = false) {
    struct stat status = {};
    status.st_mode = mode;
    status.st_uid = owner;
    return distrust_of(status, role, "/x", user, group_is_private).problem;
}

TEST_CASE("root and the user are trusted, and no other owner") {
    for (const Role role : {Role::file, Role::own_folder, Role::folder_above, Role::link}) {
        CHECK(problem(0755, 0, role).empty());
        CHECK(problem(0755, user, role).empty());
        CHECK_THAT(problem(0755, user + 1, role), ContainsSubstring("belongs to another user"));
    }
}

TEST_CASE("write permission for others is allowed in sticky folders above, and on links") {
    CHECK_FALSE(problem(0757, user, Role::file).empty());
    CHECK_FALSE(problem(0757, user, Role::folder_above).empty());
    CHECK_FALSE(problem(01777, user, Role::own_folder).empty());
    CHECK(problem(01777, user, Role::folder_above).empty());
    CHECK_FALSE(problem(01777, user + 1, Role::folder_above).empty());
    CHECK(problem(0777, user, Role::link).empty());
}

TEST_CASE("write permission for a group is allowed if it has no other member") {
    for (const Role role : {Role::file, Role::own_folder, Role::folder_above}) {
        CHECK(problem(0775, user, role, true).empty());
        CHECK_THAT(problem(0775, user, role, false), ContainsSubstring("by a group"));
    }
    CHECK(problem(01775, user, Role::folder_above, false).empty());
}

TEST_CASE("a group is private if every member that is known is root or the user") {
    loader::Folder folder;
    const std::string passwd = folder.write("passwd", "root:x:0:0::/root:/bin/sh\n"
                                                      "me:x:1000:1000::/home/me:/bin/sh\n"
                                                      "you:x:1001:100::/home/you:/bin/sh\n");
    const std::string groups = folder.write("group", "root:x:0:\nme:x:1000:\nstaff:x:50:\n"
                                                     "users:x:100:\nours:x:101:me,you\n"
                                                     "mine:x:102:me,root\nremote:x:103:stranger\n");
    const auto is_private = [&](gid_t group) {
        return is_private_group(group, user, passwd, groups);
    };
    CHECK(is_private(1000));
    CHECK(is_private(0));
    CHECK(is_private(50));
    CHECK(is_private(102));
    CHECK_FALSE(is_private(100)); // another account's first group
    CHECK_FALSE(is_private(101));
    CHECK_FALSE(is_private(103)); // a member that passwd lacks
    CHECK_FALSE(is_private(4711));
    CHECK_FALSE(is_private_group(1000, user, passwd, "/nonexistent"));
    CHECK(is_private_group(50, user, "/nonexistent", groups));
}

TEST_CASE("a group is not private if the accounts cannot be read") {
    loader::Folder folder;
    const std::string groups = folder.write("group", "staff:x:50:\n");
    CHECK_FALSE(is_private_group(50, user, folder.path(), groups));
}

TEST_CASE("a file whose path cannot be followed is refused with the system's reason") {
    loader::Folder folder;
    std::string lifted;
    REQUIRE(symlink("loop", (folder.path() + "/loop").c_str()) == 0);
    CHECK_THAT(refusal_of(folder.path() + "/loop", geteuid(), true, lifted),
               ContainsSubstring("its path cannot be followed: Too many levels"));
    CHECK(refusal_of(folder.path() + "/nothing", geteuid(), true, lifted).empty());
}

TEST_CASE("a path is followed through links, points and double slashes") {
    loader::Folder folder;
    folder.folder("a/b");
    folder.write("a/b/file", "");
    REQUIRE(symlink("a/b", (folder.path() + "/short").c_str()) == 0);
    const Distrust found = distrust(folder.path() + "/short/..//b/./file", geteuid());
    CHECK(found.problem.empty());
    CHECK(found.error == 0);
    REQUIRE(symlink("loop", (folder.path() + "/loop").c_str()) == 0);
    CHECK(distrust(folder.path() + "/loop", geteuid()).error == ELOOP);
    CHECK(distrust(folder.path() + "/nothing/file", geteuid()).error == ENOENT);
}

} // namespace
} // namespace emm::dl

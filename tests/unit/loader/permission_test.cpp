#include "support.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

namespace emm::loader {
namespace {

constexpr uid_t somebody_else = 54321;

TEST_CASE("a world-writable file is refused") {
    Folder folder;
    const std::string path = folder.copy("good", "libemm-writable.so");
    REQUIRE(chmod(path.c_str(), 0666) == 0);
    const observe::ErrorDetail error = refused(path);
    CHECK(error.code == EMM_E_PLUGIN_UNTRUSTED);
    CHECK(error.stage == "permission");
    CHECK(error.path == path);
    CHECK(error.text == "plugin " + path +
                            ": it is writable by everybody: expected no write "
                            "permission for others, found mode 0666");
    CHECK(error.hint == "chmod o-w " + path + ", or set EMM_ALLOW_UNTRUSTED=1");
}

TEST_CASE("a file in a world-writable folder is refused, even if the folder is sticky") {
    Folder folder;
    const std::string sub = folder.folder("open");
    const std::string path = folder.copy("good", "open/libemm-exposed.so");
    const mode_t mode = GENERATE(0777, 01777);
    REQUIRE(chmod(sub.c_str(), mode) == 0);
    const observe::ErrorDetail error = refused(path);
    CHECK(error.code == EMM_E_PLUGIN_UNTRUSTED);
    CHECK_THAT(error.text, ContainsSubstring("its folder " + sub + " is writable by everybody"));
    CHECK(error.got == (mode == 0777 ? "mode 0777" : "mode 1777"));
}

TEST_CASE("a symbolic link does not hide where the file lies") {
    Folder folder;
    folder.folder("open");
    const std::string path = folder.copy("good", "open/libemm-linked.so");
    REQUIRE(chmod((folder.path() + "/open").c_str(), 0777) == 0);
    const std::string link = folder.path() + "/libemm-link.so";
    REQUIRE(symlink(path.c_str(), link.c_str()) == 0);
    CHECK(refused(link).path == path);
}

TEST_CASE("a file of somebody else is refused, and both users are named") {
    Folder folder;
    const std::string path = folder.copy("good", "libemm-foreign.so");
    Search search = search_in("/nonexistent");
    if (geteuid() == 0) {
        REQUIRE(chown(path.c_str(), somebody_else, somebody_else) == 0);
    } else {
        search.user = somebody_else;
    }
    const observe::ErrorDetail error = refused(path, search);
    CHECK(error.code == EMM_E_PLUGIN_UNTRUSTED);
    CHECK_THAT(error.text, ContainsSubstring("it belongs to somebody else: expected user 0 or " +
                                             std::to_string(search.user) + ", found user "));
}

TEST_CASE("the user's own file is trusted") {
    Folder folder;
    const std::string path = folder.copy("good", "libemm-own.so");
    Search search = search_in("/nonexistent");
    if (geteuid() == 0) {
        REQUIRE(chown(path.c_str(), somebody_else, somebody_else) == 0);
        search.user = somebody_else;
    }
    CHECK(loaded(path, search).plugin->path == path);
}

TEST_CASE("EMM_ALLOW_UNTRUSTED lifts the check, except under elevated privileges") {
    Folder folder;
    const std::string path = folder.copy("good", "libemm-allowed.so");
    REQUIRE(chmod(path.c_str(), 0666) == 0);
    Search search = search_in("/nonexistent");
    search.allow_untrusted = true;
    search.elevated = true;
    const observe::ErrorDetail error = refused(path, search);
    CHECK(error.code == EMM_E_PLUGIN_UNTRUSTED);
    CHECK(error.hint == "chmod o-w " + path);
    search.elevated = false;
    CHECK(loaded(path, search).plugin->path == path);
}

TEST_CASE("a file that may not be read is refused with the system's reason") {
    Folder folder;
    const std::string path = folder.copy("good", "libemm-unreadable.so");
    REQUIRE(chmod(path.c_str(), 0) == 0);
    const bool root = geteuid() == 0;
    REQUIRE((!root || seteuid(somebody_else) == 0));
    const observe::ErrorDetail error = refused(path);
    REQUIRE((!root || seteuid(0) == 0));
    CHECK(error.code == EMM_E_PLUGIN_UNLOADABLE);
    CHECK(error.stage == "permission");
    CHECK(error.got == "Permission denied");
}

} // namespace
} // namespace emm::loader

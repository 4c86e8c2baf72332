// Behaviour: the owners and permissions that a file, its folder and those above need for loading.
#include "support.h"

#include <atomic>
#include <chrono>
#include <fcntl.h>
#include <sys/stat.h>
#include <thread>
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
                            "permission for others, found mode 0666; " +
                            error.hint);
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

TEST_CASE("a file of another user is refused, and both users are named") {
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
    CHECK(error.expected ==
          (search.user == 0 ? "user 0" : "user 0 or " + std::to_string(search.user)));
    CHECK_THAT(error.text, ContainsSubstring("it belongs to another user: expected user 0"));
    CHECK_THAT(error.got, ContainsSubstring("user "));
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

// Folders up to a file, for as long as a test needs them.
struct Tree {
    Folder folder;
    std::string above = folder.folder("above");
    std::string own = folder.folder("above/own");
    std::string file = folder.copy("good", "above/own/libemm-inside.so");
};

void allow(const std::string &path, mode_t mode) {
    REQUIRE(chmod(path.c_str(), mode) == 0);
}

TEST_CASE("a file below a world-writable folder is refused, however far above") {
    const Tree tree;
    allow(tree.above, 0777);
    const observe::ErrorDetail error = refused(tree.file);
    CHECK(error.code == EMM_E_PLUGIN_UNTRUSTED);
    CHECK(error.stage == "permission");
    CHECK(error.text == "plugin " + tree.file + ": the folder " + tree.above +
                            " above it is writable by everybody: expected no write permission for "
                            "others, found mode 0777; " +
                            error.hint);
    CHECK(error.hint == "chmod o-w " + tree.above + ", or set EMM_ALLOW_UNTRUSTED=1");
}

TEST_CASE("a sticky folder above the plugin's own is trusted, as /tmp is") {
    const Tree tree;
    allow(tree.above, 01777);
    CHECK(loaded(tree.file).plugin->path == tree.file);
}

TEST_CASE("a folder above that belongs to another user is refused") {
    const Tree tree;
    if (geteuid() != 0) {
        WARN("skipped: only root can give a folder away");
        return;
    }
    REQUIRE(chown(tree.above.c_str(), somebody_else, somebody_else) == 0);
    CHECK_THAT(refused(tree.file).text,
               ContainsSubstring("the folder " + tree.above + " above it belongs to another user"));
}

TEST_CASE("a file, its folder and those above are refused if a group may write to them") {
    const Tree tree;
    const int which = GENERATE(0, 1, 2);
    const std::string path = which == 0 ? tree.file : which == 1 ? tree.own : tree.above;
    constexpr gid_t shared = 54321;
    if (geteuid() != 0) {
        WARN("skipped: only root can give a file to any group");
        return;
    }
    REQUIRE(chown(path.c_str(), 0, shared) == 0);
    allow(path, 0775);
    const observe::ErrorDetail error = refused(tree.file);
    CHECK(error.code == EMM_E_PLUGIN_UNTRUSTED);
    CHECK_THAT(error.text, ContainsSubstring("is writable by a group that may have other members"));
    CHECK(error.got == "mode 0775, group 54321");
    CHECK(error.hint == "chmod g-w " + path + ", or set EMM_ALLOW_UNTRUSTED=1");
    allow(path, 0755);
    CHECK(loaded(tree.file).plugin->path == tree.file);
}

TEST_CASE("the folder of a symbolic link counts as well") {
    const Tree tree;
    const std::string links = tree.folder.folder("links");
    const std::string link = links + "/libemm-link.so";
    REQUIRE(symlink(tree.file.c_str(), link.c_str()) == 0);
    allow(links, 0777);
    CHECK_THAT(refused(link).text,
               ContainsSubstring("the folder " + links + " above it is writable by everybody"));
    allow(links, 0755);
    CHECK(loaded(link).plugin->path == tree.file);
}

// Another user swaps folders while a program starts: the checked folder goes, and one of the same
// name comes.
TEST_CASE("a folder that can be swapped between check and load is refused in every attempt") {
    const Tree tree;
    const std::string other = tree.folder.folder("above/other");
    tree.folder.copy("every-option", "above/other/libemm-inside.so");
    allow(tree.above, 0777);
    std::atomic<bool> done{false};
    std::thread swapper([&] {
        while (!done) {
            renameat2(AT_FDCWD, tree.own.c_str(), AT_FDCWD, other.c_str(), RENAME_EXCHANGE);
            // Valgrind runs one thread at a time, and switches only when that thread waits.
            std::this_thread::sleep_for(std::chrono::microseconds(20));
        }
    });
    int refusals = 0;
    for (int i = 0; i < 200; ++i) {
        Selection selection;
        refusals += load(search_in("/nonexistent"), spec_of(tree.file), "a test", test_host(),
                         test_defaults(), selection) == EMM_E_PLUGIN_UNTRUSTED;
    }
    done = true;
    swapper.join();
    CHECK(refusals == 200);
}

} // namespace
} // namespace emm::loader

#include "observe/file.h"

#include "catch.h"

#include <cerrno>
#include <cstring>
#include <filesystem>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

namespace emm::observe {
namespace {

// A folder of the test's own, which goes when the test ends.
class OwnFolder {
public:
    OwnFolder() {
        std::string pattern = (std::filesystem::temp_directory_path() / "emm-test-XXXXXX").string();
        REQUIRE(mkdtemp(pattern.data()));
        path_ = pattern;
    }
    ~OwnFolder() {
        std::error_code error;
        std::filesystem::remove_all(path_, error);
    }
    OwnFolder(const OwnFolder &) = delete;
    OwnFolder &operator=(const OwnFolder &) = delete;
    std::string operator/(const char *name) const { return path_ + "/" + name; }

private:
    std::string path_;
};

void make_socket(const std::string &path) {
    const int made = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
    sockaddr_un address = {};
    address.sun_family = AF_UNIX;
    REQUIRE(path.size() < sizeof address.sun_path);
    std::memcpy(address.sun_path, path.c_str(), path.size());
    REQUIRE(bind(made, reinterpret_cast<sockaddr *>(&address), sizeof address) == 0);
    close(made);
}

std::string refused_to_read(const std::string &path) {
    std::string reason;
    CHECK_FALSE(open_to_read(path, reason));
    return reason;
}

TEST_CASE("what is no regular file is not read, and its kind is named") {
    const OwnFolder folder;
    make_socket(folder / "socket");
    REQUIRE(mkfifo((folder / "fifo").c_str(), 0600) == 0);
    REQUIRE(mkdir((folder / "folder").c_str(), 0700) == 0);
    CHECK(refused_to_read(folder / "socket") ==
          folder / "socket" + " is a socket; expected a regular file");
    CHECK(refused_to_read(folder / "fifo") ==
          folder / "fifo" + " is a FIFO; expected a regular file");
    CHECK(refused_to_read(folder / "folder") ==
          folder / "folder" + " is a folder; expected a regular file");
    CHECK(refused_to_read("/dev/null") == "/dev/null is a device; expected a regular file");
    CHECK(refused_to_read(folder / "missing") ==
          "cannot open " + (folder / "missing") + ": No such file or directory");
}

TEST_CASE("a device may be appended to, but is not taken as a file of the user") {
    std::string reason;
    CHECK(open_to_append("/dev/null", reason));
    CHECK_FALSE(open_own("/dev/null", Make::yes, reason));
    CHECK(reason == "/dev/null is a device; expected a regular file");
}

TEST_CASE("a symbolic link is neither appended to nor taken as one's own, and is called so") {
    const OwnFolder folder;
    const std::string link = folder / "link";
    REQUIRE(symlink((folder / "target").c_str(), link.c_str()) == 0);
    std::string reason;
    CHECK_FALSE(open_to_append(link, reason));
    CHECK(reason == link + " is a symbolic link; expected a regular file");
    reason.clear();
    CHECK_FALSE(open_own(link, Make::no, reason));
    CHECK(reason == link + " is a symbolic link; expected a regular file");
    CHECK_FALSE(std::filesystem::exists(folder / "target"));
}

TEST_CASE("a file in a folder that is missing is not made, and the reason is the system's") {
    const OwnFolder folder;
    for (const Make make : {Make::yes, Make::by_owner_only}) {
        std::string reason;
        CHECK_FALSE(open_own(folder / "none/file", make, reason));
        CHECK(reason == "cannot open " + (folder / "none/file") + ": No such file or directory");
    }
    std::string reason;
    CHECK_FALSE(open_own(folder / "file", Make::no, reason));
    CHECK(reason.empty());
}

TEST_CASE("a file that is made for its owner is not for others to write, whatever the umask") {
    const OwnFolder folder;
    const mode_t before = umask(0);
    std::string reason;
    const File all = open_own(folder / "all", Make::yes, reason);
    const File own = open_own(folder / "own", Make::by_owner_only, reason);
    umask(before);
    struct stat status = {};
    REQUIRE((fstat(all.number(), &status) == 0 && own));
    CHECK((status.st_mode & 0777) == 0666);
    REQUIRE(fstat(own.number(), &status) == 0);
    CHECK((status.st_mode & 0777) == 0644);
}

TEST_CASE("one opening at a time has the lock on a file, also within a process") {
    const OwnFolder folder;
    std::string reason;
    File first = open_own(folder / "file", Make::yes, reason);
    const File second = open_own(folder / "file", Make::no, reason);
    REQUIRE((first && second));
    CHECK(is_same(first, second));
    CHECK(lock_for_writing(first));
    CHECK_FALSE(lock_for_writing(second));
    CHECK(errno == EAGAIN);
    first.close();
    CHECK(lock_for_writing(second));
}

TEST_CASE("a file that was deleted or replaced no longer has its name") {
    const OwnFolder folder;
    const std::string path = folder / "file";
    std::string reason;
    const File file = open_own(path, Make::yes, reason);
    CHECK(is_named(file, path));
    REQUIRE(unlink(path.c_str()) == 0);
    CHECK_FALSE(is_named(file, path));
    const File other = open_own(path, Make::yes, reason);
    REQUIRE(other);
    CHECK_FALSE(is_named(file, path));
    CHECK_FALSE(is_same(file, other));
}

} // namespace
} // namespace emm::observe

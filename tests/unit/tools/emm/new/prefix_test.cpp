#include "new/prefix.h"

#include "catch.h"

#include <cstdlib>
#include <fstream>

namespace fs = std::filesystem;
using emm::tool::cmake_prefix;
using emm::tool::is_searched_by_cmake;

namespace {

// A folder that is empty in the beginning and gone in the end.
struct Folder {
    Folder() {
        char name[] = "/tmp/emm-cmake-prefix-XXXXXX";
        REQUIRE(mkdtemp(name));
        path = name;
    }
    ~Folder() { fs::remove_all(path); }

    // The answer of cmake_prefix for a library in `libdir`, with CMake's files beside it.
    std::string prefix_with(const std::string &libdir) const {
        fs::create_directories(path / libdir / "cmake/emm");
        std::ofstream(path / libdir / "cmake/emm/emm-config.cmake") << "\n";
        return cmake_prefix({(path / libdir).string(), false});
    }

    fs::path path;
};

} // namespace

TEST_CASE("find_package searches the system's prefixes and those of its variable and of PATH") {
    CHECK(is_searched_by_cmake("/usr", "", ""));
    CHECK(is_searched_by_cmake("/usr/local", "", ""));
    CHECK(is_searched_by_cmake("/opt/emm", "/first:/opt//emm/.", ""));
    CHECK(is_searched_by_cmake("/opt/emm", "", "/usr/bin:/opt/emm/bin"));
    CHECK_FALSE(is_searched_by_cmake("/opt/emm", "/opt:/opt/emm/lib", "/usr/bin:/opt/emm/sub/bin"));
    CHECK_FALSE(is_searched_by_cmake("/usr/local/emm", "", "/usr/local/bin"));
}

TEST_CASE("the prefix that CMake is told of is above the folder of libraries") {
    const Folder folder;
    for (const char *libdir : {"lib", "lib64", "lib/x86_64-linux-gnu"}) {
        CAPTURE(libdir);
        CHECK(folder.prefix_with(libdir) == folder.path.string());
    }
}

TEST_CASE("with libraries where CMake does not look it is told of the folder of the config file") {
    const Folder folder;
    CHECK(folder.prefix_with("objects") == (folder.path / "objects/cmake/emm").string());
}

TEST_CASE("a library without files for CMake has no prefix that it could be told of") {
    const Folder folder;
    CHECK(cmake_prefix({(folder.path / "lib").string(), false}).empty());
}

using emm::tool::is_searched;
using emm::tool::pkg_config_folder;

TEST_CASE("pkg-config searches the system's folders and those of its variable, and no others") {
    for (const char *const folder :
         {"/usr/lib/pkgconfig", "/usr/lib64/pkgconfig", "/usr/lib/x86_64-linux-gnu/pkgconfig",
          "/usr/local/lib/pkgconfig", "/usr/local/lib/aarch64-linux-gnu/pkgconfig",
          "/usr/share/pkgconfig"}) {
        CAPTURE(folder);
        CHECK(is_searched(folder, ""));
    }
    for (const char *const folder :
         {"/opt/emm/lib/pkgconfig", "/usr/local/emm/lib/pkgconfig", "/usr/lib/emm/lib/pkgconfig",
          "/home/me/build/meson-uninstalled", "/usr/lib/elsewhere"}) {
        CAPTURE(folder);
        CHECK_FALSE(is_searched(folder, ""));
        CHECK_FALSE(is_searched(folder, "/opt:/opt/emm/lib/pkgconfig/more"));
        CHECK(is_searched(folder, std::string("/first:") + folder));
    }
    CHECK(is_searched("/opt/emm/lib/pkgconfig", "/opt//emm/./lib/pkgconfig"));
}

TEST_CASE("a library without emm.pc has no folder that pkg-config could be told of") {
    CHECK(pkg_config_folder({"/nonexistent/lib", false}).empty());
    CHECK(pkg_config_folder({"", false}).empty());
}

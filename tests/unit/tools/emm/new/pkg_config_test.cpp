#include "catch.h"
#include "new/pkg_config.h"

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

#include "catch.h"
#include "new/new.h"

using emm::tool::Builder;
using emm::tool::Language;
using emm::tool::plugin_name_problem;
using emm::tool::project_files;
using emm::tool::ProjectFile;

namespace {

std::string file_names(const std::vector<ProjectFile> &files) {
    std::string all;
    for (const ProjectFile &file : files) {
        all += file.name + " ";
    }
    return all;
}

std::string all_text(const std::vector<ProjectFile> &files) {
    std::string all;
    for (const ProjectFile &file : files) {
        all += file.text;
    }
    return all;
}

} // namespace

TEST_CASE("a plugin's name fits into file names and build files") {
    CHECK(plugin_name_problem("mine").empty());
    CHECK(plugin_name_problem("my-2nd_one.1").empty());
    CHECK(plugin_name_problem("4k").empty());
    CHECK(plugin_name_problem(std::string(64, 'a')).empty());
    for (const char *bad : {"", "-mine", "_mine", "a/b", "../a", ".a", "Mine", "a b", "a:b", "a;b",
                            "m\xc3\xa9moire", "a\nb", "$(a)"}) {
        CAPTURE(bad);
        CHECK(plugin_name_problem(bad) ==
              "expected a name of a-z, 0-9, '-', '_' and '.' that begins with a letter or a "
              "digit, found '" +
                  std::string(bad) + "'");
    }
    CHECK(plugin_name_problem(std::string(65, 'a')) ==
          "expected a name of at most 64 characters, found 65");
    CHECK(plugin_name_problem("pool") == "'pool' is a plugin of emm; choose another name");
    for (const char *const name : {"count", "guard", "managed", "pluggable", "rmm", "sanitize"}) {
        CHECK(!plugin_name_problem(name).empty());
    }
    CHECK(plugin_name_problem("test") == "CMake or Meson reserves 'test'; choose another name");
}

TEST_CASE("a project has the files that its builder reads, and no others") {
    CHECK(file_names(project_files("mine", Language::c, Builder::meson)) ==
          "meson.build plugin.c ");
    CHECK(file_names(project_files("mine", Language::c, Builder::cmake)) ==
          "CMakeLists.txt plugin.c ");
    CHECK(file_names(project_files("mine", Language::cpp, Builder::meson)) ==
          "meson.build plugin.cpp plugin.map ");
    CHECK(file_names(project_files("mine", Language::cpp, Builder::cmake)) ==
          "CMakeLists.txt plugin.cpp ");
}

TEST_CASE("a layer's project is the bundled layer count, with another name and entry") {
    const std::vector<ProjectFile> files = project_files("mine", Language::layer, Builder::meson);
    CHECK(file_names(files) == "meson.build layer.c ");
    const std::string text = all_text(files);
    CHECK(text.find("count:") == std::string::npos);
    CHECK(text.find("template-layer") == std::string::npos);
    CHECK(text.find(".name = \"mine\"") != std::string::npos);
    CHECK(text.find("EMM_LAYER_ENTRY(") != std::string::npos);
    CHECK(text.find("'mine+passthrough'") != std::string::npos);
}

TEST_CASE("a project has its plugin's name wherever the template has its own") {
    for (const Language language : {Language::c, Language::cpp}) {
        for (const Builder builder : {Builder::meson, Builder::cmake}) {
            const std::string text = all_text(project_files("mine", language, builder));
            CHECK(text.find("template-c") == std::string::npos);
            CHECK(text.find("Copy this folder") == std::string::npos);
            CHECK(text.find("libemm-mine.so") != std::string::npos);
            CHECK(text.find("\"mine\"") != std::string::npos); // in its table
            CHECK(text.find("which mine cannot serve") != std::string::npos);
        }
    }
}

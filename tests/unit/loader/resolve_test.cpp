// Behaviour: the way from a spec's name or path to a file, and the texts if there is none.
#include "loader/text.h"
#include "support.h"

#include <filesystem>
#include <unistd.h>

namespace emm::loader {
namespace {

namespace fs = std::filesystem;

TEST_CASE("a misspelt name gets a suggestion and the list of what was tried") {
    const observe::ErrorDetail error = refused("god", search_in(EMM_TEST_FIXTURES));
    CHECK(error.code == EMM_E_PLUGIN_NOT_FOUND);
    CHECK(error.stage == "resolve");
    CHECK_THAT(error.text, ContainsSubstring("no plugin is called 'god' (tried " + fixture("god") +
                                             "); did you mean 'good'?"));
    CHECK(error.hint == "did you mean 'good'?");
    CHECK(error.tried == std::vector<std::string>{fixture("god")});
}

TEST_CASE("of many places that were tried the sentence names three") {
    Search search = search_in("/a");
    search.path = {"/a", "/b", "/c", "/d", "/e"};
    const std::string text = refused("x", search).text;
    CHECK_THAT(text,
               ContainsSubstring("(tried /a/libemm-x.so, /b/libemm-x.so, /c/libemm-x.so and "));
    CHECK_THAT(text, ContainsSubstring(" more)"));
}

TEST_CASE("a name like no other is told which plugins there are") {
    Folder folder;
    folder.copy("good", "libemm-one.so");
    folder.copy("good", "libemm-two.so");
    const observe::ErrorDetail error = refused("somethingelse", search_in(folder.path()));
    CHECK(error.hint == "the plugins and layers found are one, two");
    CHECK_THAT(error.text, ContainsSubstring("); the plugins and layers found are one, two"));
}

TEST_CASE("where no plugin is installed, the refusal says so") {
    Folder folder;
    const observe::ErrorDetail error = refused("pool", search_in(folder.path()));
    CHECK_THAT(error.hint, ContainsSubstring("no plugin is installed where emm looks"));
}

TEST_CASE("a relative path is refused and the absolute form suggested") {
    const std::string here = fs::current_path().lexically_normal().string();
    const auto [spec, absolute] =
        GENERATE_COPY(std::pair(std::string("./libemm-x.so"), here + "/libemm-x.so"),
                      std::pair(std::string("build/../my.so"), here + "/my.so"),
                      std::pair(std::string("my.so"), here + "/my.so"));
    const observe::ErrorDetail error = refused(spec);
    CHECK(error.code == EMM_E_PLUGIN_SPEC);
    CHECK(error.stage == "resolve");
    CHECK(error.expected == "the absolute path " + absolute);
    CHECK(error.got == "'" + spec + "'");
    CHECK_THAT(error.text, ContainsSubstring("a relative path would depend"));
    CHECK_THAT(error.hint, ContainsSubstring("write " + encode(absolute)));
}

TEST_CASE("the name of a plugin's file is refused, and its bare name suggested too") {
    CHECK_THAT(refused("libemm-pool.so").hint,
               ContainsSubstring("add its folder to EMM_PLUGIN_PATH and write pool"));
}

TEST_CASE("the name of the file of a plugin that is found by name leads to that name") {
    const auto spec = GENERATE("libemm-good.so", "./libemm-good.so", "good.so");
    CHECK_THAT(refused(spec, search_in(EMM_TEST_FIXTURES)).hint,
               ContainsSubstring("write good for the plugin of that name, or /"));
    CHECK(refused("libemm-good", search_in(EMM_TEST_FIXTURES)).hint == "did you mean 'good'?");
}

TEST_CASE("a missing file is named") {
    const observe::ErrorDetail error = refused("/nonexistent/mine.so");
    CHECK(error.code == EMM_E_PLUGIN_NOT_FOUND);
    CHECK(error.stage == "resolve");
    CHECK(error.path == "/nonexistent/mine.so");
    CHECK(error.text == "plugin /nonexistent/mine.so: cannot open it: No such file or directory");
    CHECK(error.tried == std::vector<std::string>{"/nonexistent/mine.so"});
}

TEST_CASE("a path with a name behind a plus is explained, because layers have bare names") {
    CHECK(refused("/nonexistent/mine.so").hint.empty());
    CHECK(refused("/nonexistent/guard.so+pool").hint ==
          "a + in a path belongs to the file; a layer goes by its bare name, and EMM_PLUGIN_PATH "
          "names its folder");
}

TEST_CASE("a directory is no plugin") {
    Folder folder;
    const observe::ErrorDetail error = refused(folder.path());
    CHECK(error.code == EMM_E_PLUGIN_NOT_FOUND);
    CHECK_THAT(error.text, ContainsSubstring("expected a shared library, found a directory"));
    CHECK_THAT(error.hint, ContainsSubstring("EMM_PLUGIN_PATH"));
}

TEST_CASE("a named pipe is no plugin, and its writer is not waited for") {
    CHECK_THAT(refused("/dev/null").text, ContainsSubstring("found a device, pipe or socket"));
}

TEST_CASE("EMM_PLUGIN_PATH comes first, then the folder beside libemm, then the configured one") {
    Folder folder;
    Search search = search_in(folder.folder("path"));
    search.path.push_back(folder.folder("path2"));
    search.library_folder = folder.folder("lib");
    folder.folder("lib/emm");
    search.plugin_folder = folder.folder("configured");
    const std::vector<std::string> order = {"path/", "path2/", "lib/emm/", "configured/"};

    std::vector<std::string> tried;
    for (const std::string &place : order) {
        tried.push_back(folder.path() + "/" + place + "libemm-which.so");
    }
    CHECK(refused("which", search).tried == tried);
    for (auto place = order.rbegin(); place != order.rend(); ++place) {
        const std::string path = folder.copy("good", *place + "libemm-which.so");
        CHECK(loaded("which", search).plugin->path == path);
    }
}

TEST_CASE(
    "an entry that is there and leads nowhere is an error, and the next folder is not tried") {
    Folder folder;
    Search search = search_in(folder.folder("first"));
    search.path.push_back(folder.folder("second"));
    folder.copy("good", "second/libemm-mine.so");
    const std::string entry = folder.path() + "/first/libemm-mine.so";
    REQUIRE(symlink("/nonexistent/libemm-mine.so", entry.c_str()) == 0);
    const observe::ErrorDetail error = refused("mine", search);
    CHECK(error.code == EMM_E_PLUGIN_NOT_FOUND);
    CHECK(error.stage == "resolve");
    CHECK(error.path == entry);
    CHECK(error.got == "a symbolic link to /nonexistent/libemm-mine.so, which does not exist");
    REQUIRE(unlink(entry.c_str()) == 0);
    REQUIRE(symlink("libemm-mine.so", entry.c_str()) == 0);
    CHECK(refused("mine", search).got == "Too many levels of symbolic links");
    REQUIRE(unlink(entry.c_str()) == 0);
    CHECK(loaded("mine", search).plugin->name == "good");
}

TEST_CASE("a folder that may not be searched is an error that names the file looked for") {
    Folder folder;
    Search search = search_in(folder.folder("closed"));
    search.path.push_back(folder.folder("open"));
    folder.copy("good", "open/libemm-mine.so");
    fs::permissions(folder.path(), fs::perms(0755));
    fs::permissions(folder.path() + "/closed", fs::perms::none);
    const bool root = geteuid() == 0;
    constexpr uid_t somebody_else = 54321;
    REQUIRE((!root || seteuid(somebody_else) == 0));
    const observe::ErrorDetail error = refused("mine", search);
    REQUIRE((!root || seteuid(0) == 0));
    fs::permissions(folder.path() + "/closed", fs::perms(0755));
    CHECK(error.code == EMM_E_PLUGIN_UNLOADABLE);
    CHECK(error.stage == "permission");
    CHECK(error.path == folder.path() + "/closed/libemm-mine.so");
    CHECK(error.got == "Permission denied");
}

TEST_CASE("a folder of the search that is a file is an error, one that is not there is none") {
    Folder folder;
    Search search = search_in(folder.write("file", ""));
    search.path.push_back(folder.folder("second"));
    folder.copy("good", "second/libemm-mine.so");
    CHECK(refused("mine", search).got == "Not a directory");
    search.path.front() = folder.path() + "/nothing";
    CHECK(loaded("mine", search).plugin->name == "good");
}

TEST_CASE("in a build tree its plugins are meant, each in a folder of its own") {
    Folder folder;
    Search search = search_in("/nonexistent");
    search.library_folder = folder.folder("lib");
    search.plugin_folder = folder.folder("configured");
    search.build_tree = true;
    folder.folder("plugins/mine");
    const std::string path = folder.copy("good", "plugins/mine/libemm-mine.so");
    CHECK(loaded("mine", search).plugin->path == path);
    CHECK(refused("other", search).tried.at(1) == folder.path() + "/plugins/other/libemm-other.so");
}

TEST_CASE("LD_LIBRARY_PATH is never looked at") {
    setenv("LD_LIBRARY_PATH", EMM_TEST_FIXTURES, 1);
    CHECK(refused("good", search_in("/nonexistent")).code == EMM_E_PLUGIN_NOT_FOUND);
    unsetenv("LD_LIBRARY_PATH");
}

TEST_CASE("candidates are visited place by place, in order, until the visitor has enough") {
    Folder folder;
    Search search = search_in(folder.folder("path"));
    search.plugin_folder = folder.folder("configured");
    for (const char *file : {"path/libemm-b.so", "path/libemm-a.so", "configured/libemm-a.so"}) {
        folder.write(file, "");
    }
    folder.write("path/libother.so", "");
    folder.write("path/libemm-.so", "");
    folder.folder("path/libemm-folder.so");

    std::vector<std::string> seen;
    const auto note = [&](const std::string &name, const std::string &path) {
        seen.push_back(name + " " + path.substr(folder.path().size()));
        return seen.size() < 3;
    };
    for_each_candidate(search, note);
    CHECK(seen == std::vector<std::string>{"a /path/libemm-a.so", "b /path/libemm-b.so",
                                           "a /configured/libemm-a.so"});
    seen = {"", ""};
    for_each_candidate(search, note);
    CHECK(seen.size() == 3);
}

} // namespace
} // namespace emm::loader

// Behaviour: plugins are loaded once.
#include "support.h"

#include <cstdlib>
#include <dlfcn.h>
#include <filesystem>
#include <fstream>
#include <iterator>

namespace emm::loader {
namespace {

namespace fs = std::filesystem;

size_t open_descriptors() {
    return static_cast<size_t>(std::distance(fs::directory_iterator("/proc/self/fd"), {}));
}

TEST_CASE("the same file under two names is one plugin, known by its real path") {
    Folder folder;
    const std::string path = folder.copy("good", "libemm-first.so");
    fs::create_symlink(path, folder.path() + "/libemm-soft.so");
    fs::create_hard_link(path, folder.path() + "/libemm-hard.so");
    const Search search = search_in(folder.path());
    const Plugin *plugin = loaded("first", search).plugin;
    CHECK(plugin->path == path);
    CHECK(loaded("soft", search).plugin == plugin);
    CHECK(loaded("hard", search).plugin == plugin);
    CHECK(loaded(path).plugin == plugin);
}

TEST_CASE("a plugin's path keeps bytes that are not UTF-8") {
    Folder folder;
    const std::string path = folder.copy("good", "\xff.so");
    CHECK(loaded(path).plugin->path == path);
}

TEST_CASE("a copy is another plugin") {
    Folder folder;
    CHECK(loaded(folder.copy("good", "a.so")).plugin != loaded(folder.copy("good", "b.so")).plugin);
}

TEST_CASE("each selection of one plugin has its own option texts, which live on") {
    const Selection one = loaded(fixture("every-option") + ":max=1GiB");
    const Selection two = loaded(fixture("every-option") + ":max=2GiB");
    CHECK(one.plugin == two.plugin);
    CHECK(std::string(one.option_texts[1]) == "1GiB");
    CHECK(std::string(two.option_texts[1]) == "2GiB");
    CHECK(one.spec == fixture("every-option") + ":max=1GiB");
}

emm_plugin linked_in_table;
bool fails_next = true;

const emm_plugin *entry_that_fails_once(const emm_host *host) {
    if (std::exchange(fails_next, false)) {
        host->fail(EMM_E_NO_DRIVER, 0, "not yet");
        return nullptr;
    }
    return &linked_in_table;
}

TEST_CASE("what did not load is tried again the next time") {
    linked_in_table = *loaded(fixture("good")).plugin->own;
    CHECK_THAT(refused_entry(entry_that_fails_once).text, ContainsSubstring("not yet"));
    CHECK(linked_in(entry_that_fails_once).plugin->name == "good");
}

const emm_plugin *linked_in_entry(const emm_host *) {
    return &linked_in_table;
}

TEST_CASE("a linked-in plugin has no path and no build id, and its spec is its name and options") {
    linked_in_table = *loaded(fixture("every-option")).plugin->own;
    const Selection selection = linked_in(linked_in_entry, "label=a%3Ab,max=1GiB");
    CHECK(selection.plugin->path.empty());
    CHECK(selection.plugin->build_id.empty());
    CHECK(selection.spec == "every-option:label=a%3Ab,max=1GiB");
    CHECK(std::string(selection.option_texts[0]) == "a:b");
}

TEST_CASE("no plugin, good or broken, costs a file descriptor") {
    std::vector<std::string> files;
    for (const fs::directory_entry &entry : fs::directory_iterator(EMM_TEST_FIXTURES)) {
        if (entry.path().extension() == ".so") {
            files.push_back(entry.path());
        }
    }
    REQUIRE(files.size() > 40);
    const size_t before = open_descriptors();
    for (const std::string &file : files) {
        Selection selection;
        load(search_in("/nonexistent"), spec_of(file), "a test", test_host(), test_defaults(),
             selection);
    }
    CHECK(open_descriptors() == before);
}

TEST_CASE("a plugin's symbols stay its own, and it is never unloaded") {
    const Plugin &plugin = *loaded(fixture("good")).plugin;
    CHECK(dlsym(RTLD_DEFAULT, "emm_plugin_entry_v1") == nullptr);
    void *handle = dlopen(plugin.path.c_str(), RTLD_NOW | RTLD_NOLOAD);
    REQUIRE(handle);
    for (int i = 0; i < 5; ++i) {
        dlclose(handle);
    }
    Dl_info info;
    CHECK(dladdr(reinterpret_cast<void *>(plugin.table.memalloc), &info) != 0);
}

TEST_CASE("one line in the log names plugin, version, real path and how it was chosen") {
    const char *setting = getenv("EMM_LOG");
    if (!setting || std::string(setting).rfind("info:", 0) != 0) {
        WARN("skipped: EMM_LOG is not info:FILE");
        return;
    }
    Folder folder;
    const std::string path = folder.copy("good", "libemm-logged.so");
    loaded("logged", search_in(folder.path()));
    std::ifstream file(std::string(setting).substr(5));
    const std::string log((std::istreambuf_iterator<char>(file)), {});
    CHECK_THAT(log, ContainsSubstring("plugin good 1.0, " + path + " (build id "));
    CHECK_THAT(log, ContainsSubstring("chosen by a test 'logged', found in EMM_PLUGIN_PATH"));
}

} // namespace
} // namespace emm::loader

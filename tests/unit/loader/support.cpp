#include "support.h"

#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <unistd.h>

namespace emm::loader {
namespace {

namespace fs = std::filesystem;

void log(int32_t, const char *) {}
emm_function no_driver(const char *, int32_t) {
    return nullptr;
}
emm_status no_slot(emm_manager *) {
    return EMM_E_NOT_SUPPORTED;
}

template <class Load> observe::ErrorDetail refusal(Load load) {
    Selection untouched;
    const emm_status status = load(untouched);
    const observe::ErrorDetail detail = observe::last_detail();
    REQUIRE(status < 0);
    CHECK(detail.code == status);
    CHECK_FALSE(detail.stage.empty());
    CHECK(detail.text.find('\n') == std::string::npos);
    CHECK(untouched.plugin == nullptr);
    CHECK(untouched.option_texts.empty());
    return detail;
}

template <class Load> Selection selection(Load load) {
    Selection selected;
    const emm_status status = load(selected);
    INFO(observe::last_error()->text);
    REQUIRE(status == EMM_OK);
    REQUIRE(selected.plugin);
    return selected;
}

std::vector<Setting> settings_of(const std::string &text) {
    std::vector<Setting> settings;
    REQUIRE(parse_settings(text, settings) == EMM_OK);
    return settings;
}

} // namespace

std::string fixture(const std::string &name) {
    return std::string(EMM_TEST_FIXTURES) + "/libemm-" + name + ".so";
}

Folder::Folder() {
    std::string pattern = (fs::temp_directory_path() / "emm-test-XXXXXX").string();
    REQUIRE(mkdtemp(pattern.data()));
    path_ = fs::canonical(pattern).string();
}

Folder::~Folder() {
    std::error_code error;
    fs::remove_all(path_, error);
}

std::string Folder::copy(const std::string &fixture_name, const std::string &file_name) const {
    fs::copy_file(fixture(fixture_name), path_ + "/" + file_name);
    return path_ + "/" + file_name;
}

std::string Folder::write(const std::string &file_name, const std::string &bytes) const {
    std::ofstream(path_ + "/" + file_name, std::ios::binary) << bytes;
    return path_ + "/" + file_name;
}

std::string Folder::folder(const std::string &name) const {
    fs::create_directories(path_ + "/" + name);
    return path_ + "/" + name;
}

const emm_host &test_host() {
    static const emm_host host = [] {
        emm_host made = {};
        made.struct_size = sizeof made;
        made.abi_major = EMM_PLUGIN_ABI_MAJOR;
        made.abi_minor = EMM_PLUGIN_ABI_MINOR;
        made.version = "test";
        made.log = log;
        made.fail = observe::fail_by_plugin;
        made.driver = no_driver;
        return made;
    }();
    return host;
}

const emm_plugin &test_defaults() {
    static const emm_plugin defaults = [] {
        emm_plugin made = {};
        Slots slots;
        slots.fill(reinterpret_cast<emm_function>(no_slot));
        std::memcpy(static_cast<void *>(&made.create), slots.data(), sizeof slots);
        return made;
    }();
    return defaults;
}

Search search_in(const std::string &folder) {
    Search search;
    search.path = {folder};
    search.user = geteuid();
    return search;
}

Spec spec_of(const std::string &text) {
    std::vector<Spec> specs;
    REQUIRE(parse_specs(text, specs) == EMM_OK);
    REQUIRE(specs.size() == 1);
    return specs.front();
}

Selection loaded(const std::string &spec, const Search &search) {
    return selection([&](Selection &ret) {
        return load(search, spec_of(spec), "a test", test_host(), test_defaults(), ret);
    });
}

Selection linked_in(emm_plugin_entry entry, const std::string &settings) {
    return selection([&](Selection &ret) {
        return load_entry(entry, settings_of(settings), "a test", test_host(), test_defaults(),
                          ret);
    });
}

observe::ErrorDetail refused(const std::string &spec, const Search &search) {
    return refusal([&](Selection &ret) {
        return load(search, spec_of(spec), "a test", test_host(), test_defaults(), ret);
    });
}

observe::ErrorDetail refused_entry(emm_plugin_entry entry, const std::string &settings) {
    return refusal([&](Selection &ret) {
        return load_entry(entry, settings_of(settings), "a test", test_host(), test_defaults(),
                          ret);
    });
}

} // namespace emm::loader

// Shared by the loader's tests: fixtures, folders, a host, and refusals to look at.
#pragma once

#include "catch.h"
#include "loader/loader.h"
#include "observe/error.h"

#include <string>

namespace emm::loader {

// The path of a fixture plugin, see tests/fixtures/meson.build.
std::string fixture(const std::string &name);

// A folder of the test's own, which goes when the test ends.
class Folder {
public:
    Folder();
    ~Folder();
    Folder(const Folder &) = delete;
    Folder &operator=(const Folder &) = delete;

    const std::string &path() const { return path_; }

    // Copies a fixture into the folder and returns the copy's path. A copy is another plugin.
    std::string copy(const std::string &fixture_name, const std::string &file_name) const;
    std::string write(const std::string &file_name, const std::string &bytes) const;
    std::string folder(const std::string &name) const;

private:
    std::string path_;
};

const emm_host &test_host();

// A table with all slots filled; they are never called.
const emm_plugin &test_defaults();

// Looks in one folder only.
Search search_in(const std::string &folder);

Spec spec_of(const std::string &text);

// Loads a plugin that must load.
Selection loaded(const std::string &spec, const Search &search = search_in("/nonexistent"));
Selection linked_in(emm_plugin_entry entry, const std::string &settings = "");

// Loads a plugin that must be refused, and returns the refusal.
observe::ErrorDetail refused(const std::string &spec,
                             const Search &search = search_in("/nonexistent"));
observe::ErrorDetail refused_entry(emm_plugin_entry entry, const std::string &settings = "");

} // namespace emm::loader

#pragma once

#include "loader/spec.h"

#include <functional>
#include <string>
#include <sys/types.h>
#include <vector>

namespace emm::loader {

// Where plugins are looked for and whom to trust. `process_search` reads the process; tests fill
// their own.
struct Search {
    std::vector<std::string> path; // the folders of EMM_PLUGIN_PATH; none if elevated
    std::string library_folder;    // where the real libemm.so lies; "" if that is not known
    std::string plugin_folder;     // the configured one
    bool build_tree = false;       // libemm.so was not installed: the build's plugins are meant
    uid_t user = 0;                // besides root, whose files are trusted
    bool allow_untrusted = false;  // EMM_ALLOW_UNTRUSTED=1; without effect if elevated
    bool elevated = false;         // more rights than the caller: the environment is not believed
};

const Search &process_search();

// The file that `spec` means, and in which kind of place it was found.
struct Found {
    std::string path;
    std::string place; // "EMM_PLUGIN_PATH", "the build tree", ...; "" for an absolute path
    std::vector<std::string> tried;
};

emm_status find(const Search &search, const Spec &spec, Found &ret_found);

// Calls `visit` with the name and path of each plugin file, in the order of the places where a bare
// name is looked for, until it answers false.
using CandidateVisitor = std::function<bool(const std::string &name, const std::string &path)>;
void for_each_candidate(const Search &search, const CandidateVisitor &visit);

} // namespace emm::loader

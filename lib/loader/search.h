#pragma once

#include "loader/spec.h"

#include <emm/status.h>

#include <functional>
#include <string>
#include <sys/types.h>
#include <vector>

namespace emm::loader {

// Where plugins are looked for, and whose files are trusted. `process_search` reads the process;
// tests fill their own.
struct Search {
    std::vector<std::string> path; // the folders of EMM_PLUGIN_PATH; none if elevated
    std::string library_folder;    // the folder of the real libemm.so; "" if unknown
    std::string plugin_folder;     // the configured folder
    bool build_tree = false;       // libemm.so was not installed: the build's plugins are used
    uid_t user = 0;                // the user whose files are trusted, besides root
    bool allow_untrusted = false;  // EMM_ALLOW_UNTRUSTED=1; without effect if elevated
    bool elevated = false;         // more rights than the caller: the environment is not trusted
};

const Search &process_search();

// The file of a spec, and the kind of place where it was found.
struct Found {
    std::string path;
    std::string place; // "EMM_PLUGIN_PATH", "the build tree", ...; "" for an absolute path
    std::vector<std::string> tried;
};

emm_status find(const Search &search, const Spec &spec, Found &ret_found);

// Refuses a file that cannot be opened or looked at, with the errno of that.
emm_status refuse_open(const Found &found, int error);

// Calls `visit` with the name and path of each plugin file, in the order in which a bare name is
// looked for, until it returns false.
using CandidateVisitor = std::function<bool(const std::string &name, const std::string &path)>;
void for_each_candidate(const Search &search, const CandidateVisitor &visit);

} // namespace emm::loader

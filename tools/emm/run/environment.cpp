#include "run/environment.h"

#include "print.h"

#include <algorithm>
#include <fmt/ranges.h>

namespace emm::tool {
namespace {

std::string value_of(const Environment &all, const char *name) {
    const auto found = all.find(name);
    return found == all.end() ? "" : found->second;
}

// The list with `path` first, and only once. Other entries stay unchanged: in LD_LIBRARY_PATH an
// empty entry is the current folder.
std::string with_first(const std::string &path, const std::string &list, const char *separators) {
    std::string result = path;
    size_t begin = 0;
    while (!list.empty() && begin <= list.size()) {
        const size_t end = std::min(list.find_first_of(separators, begin), list.size());
        const std::string entry = list.substr(begin, end - begin);
        if (entry != path) {
            result += (begin == 0 ? ':' : list[begin - 1]) + entry;
        }
        begin = end + 1;
    }
    return result;
}

std::optional<std::string> interposer_options(const RunOptions &options) {
    std::vector<std::string> names;
    for (const auto &[name, is_set] : {std::pair("sync-free", options.sync_free),
                                       {"zero", options.zero},
                                       {"pausable", options.pausable},
                                       {"no-children", options.no_children}}) {
        if (is_set) {
            names.push_back(name);
        }
    }
    if (options.release) {
        names.push_back("release=" + *options.release);
        std::replace(names.back().begin(), names.back().end(), ',', '+');
    }
    return names.empty() ? std::optional<std::string>() : fmt::format("{}", fmt::join(names, ","));
}

} // namespace

// Separators are those of glibc: " :" in LD_PRELOAD, ":;" in LD_LIBRARY_PATH, ":" in LD_AUDIT.
Changes run_environment(const Environment &before, const RunOptions &options,
                        const std::string &folder) {
    Changes changes = {
        {"LD_PRELOAD", with_first(folder + "/libcuda.so.1", value_of(before, "LD_PRELOAD"), " :")},
        {"LD_LIBRARY_PATH", with_first(folder, value_of(before, "LD_LIBRARY_PATH"), ":;")}};
    if (options.audit) {
        changes.emplace_back(
            "LD_AUDIT", with_first(folder + "/libemm-audit.so", value_of(before, "LD_AUDIT"), ":"));
    }
    if (options.plugin) {
        changes.emplace_back("EMM_PLUGIN", *options.plugin);
    }
    changes.emplace_back("EMM_RUN", interposer_options(options));
    if (options.limit) {
        changes.emplace_back("EMM_LIMIT", *options.limit);
    }
    if (options.shared) {
        changes.emplace_back("EMM_LIMIT_SHARED", *options.shared);
    }
    if (options.record) {
        changes.emplace_back("EMM_EVENT_LOG", *options.record);
    }
    if (options.track) {
        changes.emplace_back("EMM_TRACK", *options.track);
    }
    return changes;
}

std::string shell_lines(const Environment &before, const Changes &changes) {
    std::string lines;
    for (const auto &[name, value] : changes) {
        if (value) {
            lines += "export " + name + "=" + shell_quoted(*value) + "\n";
        } else if (before.count(name) != 0) {
            lines += "unset " + name + "\n";
        }
    }
    return lines;
}

std::string log_of_check(const std::string &log) {
    const size_t end = std::min(log.find(':'), log.size());
    const std::string level = log.substr(0, end);
    return level == "info" || level == "debug" ? "warn" + log.substr(end) : log;
}

bool are_caches(const std::string &list) {
    return list == "torch" || list == "cupy" || list == "torch,cupy" || list == "cupy,torch";
}

char unfit_character(const std::string &path) {
    const size_t at = path.find_first_of(" :;$");
    return at == std::string::npos ? '\0' : path[at];
}

} // namespace emm::tool

#include "observe/settings.h"

#include "observe/callers/track_options.h"
#include "observe/memory_page.h"
#include "observe/suggest.h"
#include "observe/text.h"

#include <algorithm>
#include <array>
#include <cstdint>

namespace emm::observe {
namespace {

bool is_any(std::string_view) {
    return true;
}

struct VariableRow {
    const char *name;
    const char *expected = "";
    const char *otherwise = ""; // the value used in place of a wrong one
    bool (*takes)(std::string_view) = is_any;
    bool reader_warns = false;
};

bool is_flag(std::string_view value) {
    return value == "0" || value == "1";
}

bool is_switch(std::string_view value) {
    return value == "on" || value == "off";
}

bool is_report(std::string_view value) {
    return is_switch(value) || !page_folder(value).empty();
}

bool is_exit(std::string_view value) {
    return value == "exit";
}

bool is_count(std::string_view value) {
    return number_of<uint64_t>(value, UINT64_MAX).has_value();
}

bool is_share(std::string_view value) {
    return number_of<double>(value, 1.0).has_value();
}

bool is_tracked(std::string_view value) {
    TrackOptions options;
    return parse_track_options(value, options);
}

// A level, alone or followed by a file.
bool is_log(std::string_view value) {
    const size_t colon = value.find(':');
    const std::string_view word = value.substr(0, colon);
    return colon + 1 != value.size() &&
           std::find(level_words.begin(), level_words.end(), word) != level_words.end();
}

bool is_absolute(std::string_view folders) {
    const std::vector<std::string> all = split(folders, ':');
    return std::all_of(all.begin(), all.end(), [](const std::string &folder) {
        return folder.empty() || folder.front() == '/';
    });
}

constexpr std::array rows = {
    VariableRow{"EMM_PLUGIN"},
    VariableRow{"EMM_PLUGIN_PATH", "absolute folders", "others are ignored", is_absolute, true},
    VariableRow{"EMM_LIMIT"},
    VariableRow{"EMM_LIMIT_SHARED"},
    VariableRow{"EMM_LIMIT_FOLDER"},
    VariableRow{"EMM_DRIVER"},
    VariableRow{"EMM_SIM"},
    VariableRow{"EMM_LOG", "off, error, warn, info or debug, and perhaps :FILE", "warn is used",
                is_log, true},
    VariableRow{"EMM_EVENT_LOG"},
    VariableRow{"EMM_TRACK", track_options_expected, "nothing is tracked", is_tracked},
    VariableRow{"EMM_OOM_REPORT", "on, off or page:FOLDER", "the default is used", is_report},
    VariableRow{"EMM_STATS", "exit", "no statistics are written", is_exit},
    VariableRow{"EMM_RUN"},
    VariableRow{"EMM_TOP", "on or off", "it is on", is_switch},
    VariableRow{"EMM_DRIVER_METER", "0 or 1", "nothing is counted", is_flag},
    VariableRow{"EMM_MAX_PENDING_DEALLOCS_COUNT", "a whole number from 0 to 2^64 - 1",
                "the default is used", is_count},
    VariableRow{"EMM_MAX_PENDING_DEALLOCS_RATIO", "a number from 0 to 1", "the default is used",
                is_share},
    VariableRow{"EMM_IPC_STAGED", "0 or 1", "memory is mapped where possible", is_flag},
    VariableRow{"EMM_ALLOW_UNTRUSTED", "0 or 1",
                "files that other users could have written are refused", is_flag},
};

constexpr std::string_view prefix = "EMM_";

template <class Name, class Predicate> const std::vector<Name> *names_of(Predicate is_wanted) {
    auto *const names = new std::vector<Name>;
    for (const VariableRow &row : rows) {
        if (is_wanted(row)) {
            names->push_back(row.name);
        }
    }
    return names;
}

} // namespace

std::string complaint_about(std::string_view variable, std::string_view value) {
    const auto row = std::find_if(rows.begin(), rows.end(),
                                  [&](const VariableRow &one) { return one.name == variable; });
    if (row == rows.end() || value.empty() || row->takes(value)) {
        return "";
    }
    return std::string("expected ") + row->expected + ", found '" +
           one_line(value.substr(0, longest_text)) + "'; " + row->otherwise;
}

std::string complaint_about_name(std::string_view variable) {
    if (variable.substr(0, prefix.size()) != prefix) {
        return "";
    }
    std::vector<std::string> names = variables();
    for (std::string &name : names) {
        name.erase(0, prefix.size());
    }
    const std::string_view given = variable.substr(prefix.size());
    const std::string *const meant = closest(given, names);
    return !meant || *meant == given
               ? ""
               : "is not a variable of emm; did you mean '" + std::string(prefix) + *meant + "'?";
}

const std::vector<std::string> &variables() {
    static const auto *const names =
        names_of<std::string>([](const VariableRow &) { return true; });
    return *names;
}

const std::vector<const char *> &settings() {
    static const auto *const names = names_of<const char *>(
        [](const VariableRow &row) { return row.takes != is_any && !row.reader_warns; });
    return *names;
}

} // namespace emm::observe

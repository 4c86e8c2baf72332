#include "check/plan.h"

#include "child.h"

#include <algorithm>
#include <cstdlib>

namespace emm::tool::check {
namespace {

bool names_requirement(const Case &entry, const std::string &filter) {
    return (" " + std::string(entry.requirements) + " ").find(" " + filter + " ") !=
           std::string::npos;
}

bool wanted(const CheckOptions &options, const Planned &planned) {
    const auto lets_through = [&](const std::string &filter) {
        return planned.name().find(filter) != std::string::npos ||
               names_requirement(*planned.entry, filter);
    };
    return options.filters.empty() ||
           std::any_of(options.filters.begin(), options.filters.end(), lets_through);
}

} // namespace

std::string Planned::name() const {
    return mode.empty() ? entry->name : std::string(entry->name) + "@" + mode;
}

std::vector<Planned> plan(const CheckOptions &options, bool simulated) {
    std::vector<Planned> made;
    for (const Case &entry : cases()) {
        const bool in_modes = simulated && (entry.needs & every_mode);
        const std::vector<std::string> modes =
            in_modes ? std::vector<std::string>{"eager", "lazy", "random"}
                     : std::vector<std::string>{""};
        for (const std::string &mode : modes) {
            const Planned planned = {&entry, mode};
            if (wanted(options, planned)) {
                made.push_back(planned);
            }
        }
    }
    return made;
}

std::string simulator_settings(const Planned &planned, uint64_t seed) {
    std::string text = planned.entry->settings;
    if (!planned.mode.empty()) {
        add_settings(text, "progress=" + planned.mode);
    }
    add_settings(text, "race=count,seed=" + std::to_string(seed));
    if (const char *given = std::getenv("EMM_SIM")) {
        add_settings(text, given);
    }
    add_settings(text, "memory=8GiB");
    return text;
}

// In this order: a fault in a basic case fails most of the later ones, so the first failure says
// what is wrong.
const std::vector<Case> &cases() {
    static const std::vector<Case> all = [] {
        std::vector<Case> made;
        for (const auto &part :
             {library_cases(), table_cases(), memory_cases(), account_cases(), statistics_cases(),
              lifetime_cases(), version_cases(), thread_cases(), wait_cases(), fault_cases(),
              stream_cases(), capture_cases(), cleanup_cases(), trim_cases(), pause_cases(),
              host_memory_cases(), process_cases(), host_side_cases(), layer_cases()}) {
            made.insert(made.end(), part.begin(), part.end());
        }
        return made;
    }();
    return all;
}

} // namespace emm::tool::check

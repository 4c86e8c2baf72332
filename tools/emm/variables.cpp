#include "variables.h"

namespace emm::tool {

const std::vector<const char *> &variables() {
    static const std::vector<const char *> all = {"EMM_PLUGIN",
                                                  "EMM_PLUGIN_PATH",
                                                  "EMM_DRIVER",
                                                  "EMM_SIM",
                                                  "EMM_LOG",
                                                  "EMM_EVENT_LOG",
                                                  "EMM_TRACK",
                                                  "EMM_OOM_REPORT",
                                                  "EMM_STATS",
                                                  "EMM_RUN",
                                                  "EMM_TOP",
                                                  "EMM_DRIVER_METER",
                                                  "EMM_MAX_PENDING_DEALLOCS_COUNT",
                                                  "EMM_MAX_PENDING_DEALLOCS_RATIO",
                                                  "EMM_IPC_STAGED",
                                                  "EMM_ALLOW_UNTRUSTED"};
    return all;
}

std::string variables_help() {
    constexpr size_t widest = 90;
    std::string text, line = "Environment:";
    for (const std::string name : variables()) {
        const std::string word = name + (name == variables().back() ? "." : ",");
        if (line.size() + 1 + word.size() > widest) {
            text += line + "\n";
            line = word;
        } else {
            line += " " + word;
        }
    }
    return text + line + "\n";
}

} // namespace emm::tool

#include "observe/environment.h"

#include "observe/log.h"
#include "observe/memory_page.h"
#include "observe/process.h"
#include "observe/settings.h"
#include "observe/text.h"

#include <emm/plugin.h>

#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <mutex>
#include <new>
#include <set>
#include <string>
#include <unistd.h>

namespace emm::observe {
namespace {

void warn_once(const char *name, const std::string &text) {
    static std::mutex mutex;
    static auto *warned = new std::set<std::string>;
    {
        std::lock_guard lock(mutex);
        if (!warned->insert(name).second) {
            return;
        }
    }
    log(EMM_LOG_WARN, name + text);
}

// Checks the folder now: when the page is written, memory has run out, and a failure would lose the
// page.
void check_page_folder() {
    const std::string folder(page_folder(setting("EMM_OOM_REPORT")));
    if (!folder.empty() && access((folder + "/").c_str(), W_OK | X_OK) != 0) {
        const std::string reason = std::strerror(errno);
        warn_once("EMM_OOM_REPORT", ": cannot write to the folder '" + one_line(folder) +
                                        "': " + reason + "; the report goes to the log alone");
    }
}

} // namespace

std::string_view environment(const char *name) noexcept {
    const char *value = secure_getenv(name);
    if (value) {
        return value;
    }
    if (elevated() && std::getenv(name)) {
        try {
            warn_once(name, " is ignored: the process has elevated privileges");
        } catch (...) {
            return "";
        }
    }
    return "";
}

std::string_view setting(const char *name) noexcept {
    const std::string_view value = environment(name);
    try {
        const std::string complaint = complaint_about(name, value);
        if (complaint.empty()) {
            return value;
        }
        warn_once(name, ": " + complaint);
    } catch (const std::bad_alloc &) {
        return "";
    }
    return "";
}

void check_settings() noexcept {
    try {
        for (const char *const name : settings()) {
            setting(name);
        }
        check_page_folder();
        for (char **entry = environ; entry && *entry && !elevated(); ++entry) {
            const std::string_view name =
                std::string_view(*entry).substr(0, std::strcspn(*entry, "="));
            if (const std::string complaint = complaint_about_name(name); !complaint.empty()) {
                warn_once(std::string(name).c_str(), " " + complaint);
            }
        }
    } catch (const std::bad_alloc &) {
        return; // each reader warns by itself
    }
}

} // namespace emm::observe

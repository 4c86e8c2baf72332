#include "observe/environment.h"

#include "observe/log.h"

#include <emm/plugin.h>

#include <cstdlib>
#include <cstring>
#include <mutex>
#include <set>
#include <string>
#include <sys/auxv.h>

namespace emm::observe {
namespace {

void warn_once(const char *name) {
    static std::mutex mutex;
    static auto *warned = new std::set<std::string>;
    {
        std::lock_guard lock(mutex);
        if (!warned->insert(name).second) {
            return;
        }
    }
    // The log reads EMM_LOG itself.
    if (std::strcmp(name, "EMM_LOG") != 0) {
        log(EMM_LOG_WARN, std::string(name) + " is ignored: the process has elevated privileges");
    }
}

} // namespace

bool elevated() noexcept {
    return getauxval(AT_SECURE) != 0;
}

std::string_view environment(const char *name) noexcept {
    const char *value = secure_getenv(name);
    if (value) {
        return value;
    }
    if (elevated() && std::getenv(name)) {
        try {
            warn_once(name);
        } catch (...) {
            return "";
        }
    }
    return "";
}

} // namespace emm::observe

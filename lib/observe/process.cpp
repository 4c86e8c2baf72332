#include "observe/process.h"

#include "observe/descriptors.h"
#include "observe/error.h"
#include "observe/log.h"
#include "observe/settings.h"

#include <emm/plugin.h>

#include <cstdlib>
#include <cstring>
#include <mutex>
#include <new>
#include <pthread.h>
#include <set>
#include <string>
#include <sys/auxv.h>
#include <unistd.h>

namespace emm::observe {
namespace {

std::atomic<bool> registered{false};

// No lock can be trusted here, nor the guard of a static.
void enter_child() {
    const uint32_t state = state_of_child(process_state.load());
    const bool forked = (state & process_forked) != 0;
    process_state.store(state);
    leave_descriptors_to_parent(forked);
    if (forked && mark_forked_child) {
        mark_forked_child();
    }
}

// Before anything that the handlers look after is there.
[[gnu::constructor]] void register_at_load() {
    register_fork_handlers();
}

void warn_once(const char *name, const std::string &text) {
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
        log(EMM_LOG_WARN, name + text);
    }
}

} // namespace

// Registered twice, by two threads at once, they do no harm.
bool register_fork_handlers() noexcept {
    if (!registered.load(std::memory_order_acquire) &&
        pthread_atfork(&hold_descriptors, &release_descriptors, &enter_child) == 0) {
        registered.store(true, std::memory_order_release);
    }
    return registered.load(std::memory_order_relaxed);
}

emm_status refuse_forked_child() noexcept {
    return fail(EMM_E_FORKED, 0, emm_status_text(EMM_E_FORKED));
}

std::string program_name() {
    char bytes[4096];
    const ssize_t got = readlink("/proc/self/exe", bytes, sizeof bytes);
    const std::string_view path(bytes, got > 0 ? static_cast<size_t>(got) : 0);
    return std::string(path.substr(path.rfind('/') + 1));
}

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
        for (char **entry = environ; entry && *entry && !elevated(); ++entry) {
            const std::string_view name =
                std::string_view(*entry).substr(0, std::strcspn(*entry, "="));
            if (const std::string complaint = complaint_about_name(name); !complaint.empty()) {
                warn_once(std::string(name).c_str(), " " + complaint);
            }
        }
    } catch (const std::bad_alloc &) {
        return; // each tells by itself as it is read
    }
}

} // namespace emm::observe

#include "observe/process.h"

#include "observe/descriptors.h"
#include "observe/error.h"

#include <climits>
#include <pthread.h>
#include <sys/auxv.h>
#include <unistd.h>

namespace emm::observe {
namespace {

std::atomic<bool> registered{false};

// In a child no lock can be trusted, and no guard of a static.
void enter_child() {
    const uint32_t state = state_of_child(process_state.load());
    const bool forked = (state & process_forked) != 0;
    process_state.store(state);
    leave_descriptors_to_parent(forked);
    if (forked && mark_forked_child) {
        mark_forked_child();
    }
}

// Runs before anything that the handlers look after exists.
[[gnu::constructor]] void register_at_load() {
    register_fork_handlers();
}

} // namespace

// If two threads register at once, the handlers run twice, which does no harm.
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

std::string program_path() {
    char path[PATH_MAX];
    const ssize_t size = readlink("/proc/self/exe", path, sizeof path);
    return std::string(path, size > 0 ? static_cast<size_t>(size) : 0);
}

std::string program_name() {
    const std::string path = program_path();
    return path.substr(path.rfind('/') + 1);
}

bool elevated() noexcept {
    return getauxval(AT_SECURE) != 0;
}

} // namespace emm::observe

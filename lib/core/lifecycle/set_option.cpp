#include "core/lifecycle/lifecycle.h"
#include "core/memory/call.h"
#include "core/record/context.h"
#include "loader/options.h"
#include "observe/error.h"
#include "observe/log.h"

#include <optional>
#include <string>
#include <utility>

namespace emm::core {
namespace {

// If the plugin lacks the slot, the default slot refuses, whatever the list of options says.
emm_status check_change(const emm_context &pool, const char *key, const char *text,
                        const char *&ret_text) {
    const loader::Plugin &plugin = *pool.selection->plugin;
    return plugin.defaults(loader::Slot::set_option)
               ? EMM_OK
               : loader::check_change(plugin, key, text, ret_text);
}

} // namespace

// The manager's lock is not held when the line goes to the log: the program's callback may wait for
// a call that emm pause holds, and emm resume needs the lock.
emm_status set_option(emm_context &pool, const char *key, const char *text) {
    EMM_TRY(expect_outside("changed"));
    const char *told = text;
    {
        const OwnerGuard guard(pool.manager_lock);
        EMM_TRY(
            guard.expect_owned("a plugin must not change an option of the context that it serves"));
        EMM_TRY(admit_alive(pool));
        EMM_TRY(check_change(pool, key, text, told));
        Announced::Options changed = pool.announced.options();
        changed[key] = told ? std::optional<std::string>(told) : std::nullopt;
        EMM_TRY(EMM_CALL(pool, set_option, key, told));
        pool.announced.set_options(std::move(changed));
    }
    observe::log(EMM_LOG_INFO, "{}: option {} is now {}", pool, key, told ? told : "unset");
    return EMM_OK;
}

} // namespace emm::core

#include "core/lifecycle/host.h"

#include "core/memory/recovery.h"
#include "core/record/context.h"
#include "core/record/sharing.h"
#include "driver/driver.h"
#include "observe/error.h"
#include "observe/log.h"
#include "observe/process.h"
#include "observe/text.h"

#include <new>

namespace emm::core {
namespace {

// A plugin that returns what a service answered has nothing to add: the service's sentence stays.
emm_status passed_on(emm_status status) noexcept {
    if (status < EMM_OK) {
        observe::make_plugin_word();
    }
    return status;
}

// A plugin may call these from its own exit handlers, and at the end of its threads.
void host_log(int32_t level, const char *text) {
    observe::log(level, observe::bounded(text));
}

emm_status host_defer(emm_context *context, emm_deferred function, void *argument, size_t bytes) {
    return observe::is_forked_child() ? observe::refuse_forked_child()
                                      : passed_on(defer(*context, function, argument, bytes));
}

size_t host_pressure(emm_context *context, size_t bytes) {
    return observe::is_forked_child() ? 0 : press(*context, bytes);
}

emm_status host_serve_ipc(emm_context *context, const emm_ipc_source *source,
                          emm_ipc_handle *ret_handle) {
    if (observe::is_forked_child()) {
        return observe::refuse_forked_child();
    }
    return passed_on(observe::with_memory("no memory to serve an export", [&] {
        return sharing->serve(*context, *source, ret_handle);
    }));
}

emm_status host_withdraw_ipc(emm_context *context, const emm_ipc_handle *handle) {
    return observe::is_forked_child() ? observe::refuse_forked_child()
                                      : passed_on(sharing->withdraw(*context, *handle));
}

constexpr emm_host the_host = {
    sizeof(emm_host), EMM_PLUGIN_ABI_MAJOR,     EMM_PLUGIN_ABI_MINOR,   0,           EMM_VERSION,
    &host_log,        &observe::fail_by_plugin, &driver::metered_entry, &host_defer, &host_pressure,
    &host_serve_ipc,  &host_withdraw_ipc};

} // namespace

const emm_host &host() {
    return the_host;
}

} // namespace emm::core

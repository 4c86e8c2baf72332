#include "core/host.h"

#include "core/context.h"
#include "core/recovery.h"
#include "driver/driver.h"
#include "observe/error.h"
#include "observe/log.h"

namespace emm::core {
namespace {

void host_log(int32_t level, const char *text) {
    observe::log(level, text ? text : "");
}

emm_status host_defer(emm_context *context, emm_deferred function, void *argument, size_t bytes) {
    return defer(*context, function, argument, bytes);
}

size_t host_pressure(emm_context *context, size_t bytes) {
    return press(*context, bytes);
}

constexpr emm_host the_host = {sizeof(emm_host),
                               EMM_PLUGIN_ABI_MAJOR,
                               EMM_PLUGIN_ABI_MINOR,
                               0,
                               EMM_VERSION,
                               &host_log,
                               &observe::fail_by_plugin,
                               &driver::metered_entry,
                               &host_defer,
                               &host_pressure};

} // namespace

const emm_host &host() {
    return the_host;
}

} // namespace emm::core
